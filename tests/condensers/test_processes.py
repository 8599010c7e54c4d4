"""Several processes condense one conversation while another writes it: nothing is forgotten twice, or parted."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Barrier
from multiprocessing.synchronize import Event as Flag
from pathlib import Path

from foldlog.condensers import CondenseHandler, DigestCondenser, NoCondensationAvailable
from foldlog.condensers.strategies.summarizing import Summary
from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CondensationAction,
    CondensationRequest,
    Event,
    Message,
    Observation,
    open_store,
)
from foldlog.projections import View, Views

CALLS = 150


class SlowDigest(DigestCondenser):
    """Takes its time, as a model does, so that others come first."""

    def summarize(self, events: Sequence[Event], max_event_length: int | None) -> Summary:
        time.sleep(0.02)
        return super().summarize(events, max_event_length)


def write(url: str, done: Flag, ready: Barrier) -> None:
    try:
        with open_store(url) as store:
            store.register(Views(store))
            ready.wait(60)
            for n in range(CALLS):
                store.append("c1", Action(tool="run", call_id=f"call {n}"), expected_version=ANY_VERSION)
                store.append("c1", Observation(content="done", call_id=f"call {n}"), expected_version=ANY_VERSION)
                if n % 40 == 20:
                    store.append("c1", CondensationRequest(), expected_version=ANY_VERSION)
    finally:
        done.set()


def condense(url: str, done: Flag, ready: Barrier) -> None:
    with open_store(url) as store:
        views = Views(store)
        store.register(views)
        handler = CondenseHandler(store, views, SlowDigest(max_size=20))
        ready.wait(60)
        while not done.is_set():
            try:
                handler.handle("c1")
            except NoCondensationAvailable:  # both answered one request, and nothing was left to forget
                continue


def test_processes_that_condense_at_once_never_forget_twice_nor_part_a_call_from_its_answer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/h.db"
    with open_store(url) as store:
        store.register(Views(store))
        store.append("c1", Message(source="user", content="go"), expected_version=0)
    spawn = multiprocessing.get_context("spawn")
    done, ready = spawn.Event(), spawn.Barrier(3)
    workers = [spawn.Process(target=target, args=(url, done, ready)) for target in (condense, condense, write)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join(90)
        assert [worker.exitcode for worker in workers] == [0, 0, 0]
    finally:
        for worker in workers:
            worker.kill()

    with open_store(url) as store:
        view, forgotten = View.from_events([]), set[int]()
        for event in store.events("c1"):
            after = view.then([event])
            if isinstance(event, CondensationAction):
                intervals, summaries = event.forgotten
                named = {*summaries, *(i for first, last in intervals for i in range(first, last + 1))}
                assert named <= {shown.id for shown in view}
                assert not named & forgotten
                assert after.left_behind == view.left_behind
                forgotten |= named
            view = after
        assert len(forgotten) > CALLS
        assert Views(store).current("c1").events == view.events
