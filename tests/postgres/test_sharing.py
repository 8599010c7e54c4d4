"""Threads that append to one conversation at the same time share a transaction, and fail alone."""

import threading
from functools import partial
from types import NoneType

import pytest

from foldlog.eventstore import ANY_VERSION, VersionConflict, open_store
from foldlog.eventstore.recorders.postgres import PostgresRecorder
from foldlog.eventstore.recorders.types import Outcome, RecalledKey
from tests.conformance.conftest import noted
from tests.said import ids, said, say
from tests.waiting import until


@pytest.fixture
def store(url):
    with open_store(url) as store:
        say(store, "c1", "first")
        yield store


class Held:
    """The work of a thread that leads until it may go on."""

    conversation = "c1"

    def __init__(self):
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, transaction):
        self.began.set()
        assert self.may_end.wait(30)


def together(store, works, meanwhile=lambda: None):
    """Run works in threads that wait for a work that already leads. Return their outcomes."""
    recorder = store.database.recorder
    held = Held()
    outcomes = {}
    [server] = getattr(recorder, "servers", [recorder])
    leading = threading.Thread(target=partial(recorder.transact, held, any_thread=True))
    leading.start()
    assert held.began.wait(30)
    threads = []
    for place, work in enumerate(works):
        threads.append(
            threading.Thread(target=lambda p=place, w=work: outcomes.update({p: Outcome.of(w)}))
        )
        threads[-1].start()
        until(lambda place=place: len(server._sharing._waiting["c1"]) > place)
    meanwhile()
    held.may_end.set()
    for thread in (leading, *threads):
        thread.join()
    return [outcomes[place] for place in range(len(works))]


def test_appends_that_wait_are_committed_together(store, monkeypatch):
    transactions = noted(monkeypatch, PostgresRecorder, "_transact")
    append = partial(store.append, "c1", expected_version=ANY_VERSION)
    outcomes = together(store, [partial(append, said(str(n))) for n in range(20)])
    recorded = [outcome.unwrap() for outcome in outcomes]
    assert len(transactions) == 2, "one for the first work, and one for all the works that waited"
    assert [entry.id for (entry,) in recorded] == [*range(1, 21)]
    assert [entry for (entry,) in recorded] == [*store.follow()][1:]


def test_a_refused_append_fails_alone(store):
    works = [partial(store.append, "c1", said(str(n)), expected_version=n) for n in (1, 7, 2, 2)]
    errors = [outcome.error for outcome in together(store, works)]
    assert [*map(type, errors)] == [NoneType, VersionConflict] * 2
    assert store.version("c1") == 3


class Failing:
    """The work of a caller that fails after it has written."""

    conversation = "c1"

    def __call__(self, transaction):
        conversation = transaction.conversation("c1")
        transaction.remember(conversation.key, "of the failed one", RecalledKey(0, 1))
        raise LookupError("too late")


def test_a_failed_work_is_rolled_back_alone(store):
    append = partial(store.append, "c1", expected_version=ANY_VERSION)
    failing = partial(store.database.recorder.transact, Failing(), any_thread=True)
    errors = [outcome.error for outcome in together(store, [partial(append, said("1")), failing])]
    assert [*map(type, errors)] == [NoneType, LookupError]
    assert ids(store.events("c1")) == [0, 1]
    assert (
        store.query("c1", lambda reading: list(reading._reader.recalled(reading.key, "", 9))) == []
    )


def test_appends_of_another_process_are_seen(store, url):
    """The first append that waits assumes that the conversation is as this process left it."""
    with open_store(url) as other:
        works = [partial(store.append, "c1", said(str(n)), expected_version=n) for n in (2, 3)]
        meanwhile = partial(other.append, "c1", said("1"), expected_version=1)
        assert [outcome.error for outcome in together(store, works, meanwhile)] == [None, None]
