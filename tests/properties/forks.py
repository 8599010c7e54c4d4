"""Forks against a model, a tree of lists: random operations, and after each the store must answer as the model does.

    python -m tests.properties.forks --sequences 10000            # in memory; or --url sqlite, --encrypted
    python -m tests.properties.forks --from 4711 --sequences 1    # the sequence that failed, again

A sequence is a number: the operations follow from it.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from foldlog.eventstore import (
    ANY_VERSION,
    CondensationAction,
    CondensationRequest,
    ConversationErased,
    ConversationHasForks,
    Entry,
    Erased,
    Event,
    IdempotencyConflict,
    Message,
    Store,
    VersionConflict,
)
from foldlog.eventstore.log.keys import KeyRing
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import Published, verify
from foldlog.eventstore.opening import open_store
from foldlog.projections import View, Views

__all__ = ["run_sequence"]

_STEPS = 24
_KEYS = KeyRing([SecretStr("7a" * 32)])


@dataclass
class Model:
    """What one conversation should be. ``own`` is the id of its first event that it does not share."""

    events: list[str] = field(default_factory=list)
    parent: str | None = None
    own: int = 0
    keys: dict[str, tuple[int, str]] = field(default_factory=dict)
    erased: bool = False


class Trial:
    """One sequence of operations on a store and on the model."""

    def __init__(self, number: int, opened: Callable[[], Store], *, reopens: bool) -> None:
        self.random = random.Random(number)
        self.opened, self.reopens = opened, reopens
        self.model: dict[str, Model] = {}
        self.heads: dict[str, list[Published]] = {}
        self.open()

    def open(self) -> None:
        self.store = self.opened()
        self.views = Views(self.store)
        if self.random.random() < 0.8:
            self.store.register(self.views)

    def run(self) -> None:
        self.append()
        for _ in range(_STEPS):
            operations = [self.append] * 6 + [self.fork] * 5 + [self.remember, self.stale, self.taken, self.erase]
            self.random.choice(operations + ([self.reopen] if self.reopens else []))()
            self.look(self.random.choice(list(self.model)))
        for name in self.model:
            self.look(name)
        self.check_all()
        self.store.close()

    # -- operations ---------------------------------------------------------------------------------------------------

    def pick(self) -> str:
        alive = [name for name, each in self.model.items() if not each.erased]
        return self.random.choice(alive) if alive else self.new()

    def new(self) -> str:
        name = f"c{len(self.model)}"
        self.model[name] = Model()
        self.put(name, ["m:first"])
        return name

    def put(self, name: str, texts: Sequence[str]) -> None:
        model = self.model[name]
        expected = self.random.choice([len(model.events), ANY_VERSION])
        recorded = self.store.append(name, [_event(text) for text in texts], expected_version=expected)
        assert [each.id for each in recorded] == list(range(len(model.events), len(model.events) + len(texts)))
        model.events += texts
        head = bytes.fromhex(self.store.conversation(name).head)
        self.heads.setdefault(name, []).append(Published(len(model.events), head))

    def append(self) -> None:
        if not self.model or self.random.random() < 0.1:
            self.new()
            return
        name = self.pick()
        texts = [f"m:{self.random.randrange(1000)}" for _ in range(self.random.randrange(1, 4))]
        if self.random.random() < 0.2:
            texts = ["r:"]
        elif self.random.random() < 0.4:
            version = len(self.model[name].events)
            first = self.random.randrange(version)
            last = min(version - 1, first + self.random.randrange(4))
            texts = [f"f:{first}:{last}:{self.random.randrange(3)}"]
        self.put(name, texts)

    def fork(self) -> None:
        name = self.pick()
        model = self.model[name]
        at = self.random.randrange(1, len(model.events) + 1)
        fork = f"c{len(self.model)}"
        row = self.store.fork(name, at, fork)
        parent = name
        while self.model[parent].parent is not None and at <= self.model[parent].own:
            parent = self.model[parent].parent or ""
        self.model[fork] = Model(model.events[:at], parent, at)
        assert (row.id, row.version, row.parent, row.parent_version) == (fork, at, parent, at)
        self.heads[fork] = [each for each in self.heads[name] if each.version <= at]

    def remember(self) -> None:
        name = self.pick()
        model = self.model[name]
        key, text = f"k{self.random.randrange(3)}", f"m:{self.random.randrange(2)}"
        known = model.keys.get(key)
        try:
            (recorded,) = self.store.append(name, _event(text), expected_version=ANY_VERSION, idempotency_key=key)
        except IdempotencyConflict:
            assert known is not None
            assert known[1] != text
            return
        if known is None:
            model.keys[key] = (len(model.events), text)
            model.events.append(text)
        assert (recorded.id, text) == model.keys[key]

    def stale(self) -> None:
        name = self.pick()
        version = len(self.model[name].events)
        with pytest.raises(VersionConflict, match=f"at version {version}"):
            self.store.append(name, _event("m:no"), expected_version=version + self.random.choice([-1, 1]))

    def taken(self) -> None:
        name, other = self.pick(), self.random.choice(list(self.model))
        with pytest.raises(ConversationErased if self.model[other].erased else VersionConflict):
            self.store.fork(name, 1, other)

    def erase(self) -> None:
        if self.random.random() < 0.5:
            return
        name = self.pick()
        with_forks, detached = self.random.random() < 0.3, self.random.random() < 0.5
        needed = [each for each, model in self.model.items() if model.parent == name and not model.erased]
        if needed and detached and not with_forks:
            erase(self.store, name, reason="asked for", detach_forks=True, complete=False)
            for each in needed:
                self.model[each].parent, self.model[each].own = None, 0
            self.model[name].erased = True
            self.heads.pop(name, None)
            return
        if needed and not with_forks:
            with pytest.raises(ConversationHasForks) as refused:
                erase(self.store, name, reason="asked for")
            assert set(refused.value.forks) == set(needed)
            return
        erase(self.store, name, reason="asked for", with_forks=with_forks, complete=False)
        self.forget(name)

    def forget(self, name: str) -> None:
        for each, model in self.model.items():
            if model.parent == name and not model.erased:
                self.forget(each)
        self.model[name].erased = True
        self.heads.pop(name, None)

    def reopen(self) -> None:
        self.store.close()
        self.open()

    # -- what must hold -----------------------------------------------------------------------------------------------

    def look(self, name: str) -> None:
        model = self.model[name]
        if model.erased:
            with pytest.raises(ConversationErased):
                self.store.events(name)
            return
        events = list(self.store.events(name))
        assert [_text(event) for event in events] == model.events, name
        assert [event.id for event in events] == list(range(len(model.events)))
        start = self.random.randrange(len(events) + 1)
        stop = self.random.randrange(start, len(events) + 1)
        assert list(self.store.events(name, start, stop)) == events[start:stop]
        assert list(self.store.events(name, start, stop, reverse=True)) == events[start:stop][::-1]
        version = self.random.randrange(len(events) + 1)
        for at in (version, len(events)):
            assert list(self.views.at(name, at)) == list(View.from_events(events[:at])), (name, at)
        if self.random.random() < 0.1:
            self.views.rebuild(name)
            assert list(self.views.current(name)) == list(View.from_events(events))
        row = self.store.conversation(name)
        assert (row.version, row.parent) == (len(events), model.parent)

    def check_copies(self) -> None:
        with open_store("memory:", keys=self.random.choice([None, _KEYS])) as target:
            for moved in copy_store(self.store, target):
                assert moved.problem is None, moved
            assert list(compare_stores(self.store, target)) == []
            for name, model in self.model.items():
                if not model.erased:
                    assert [_text(event) for event in target.events(name)] == model.events
                    target.append(name, _event("m:on"), expected_version=len(model.events))
            for verdict in verify(target, published=self.heads):
                assert verdict.findings == (), (verdict.conversation, verdict.findings)

    def check_all(self) -> None:
        for verdict in verify(self.store, published=self.heads):
            assert verdict.findings == (), (verdict.conversation, verdict.findings)
        for name, model in self.model.items():
            if not model.erased:
                (verdict,) = verify(self.store, name, published={name: self.heads[name]})
                assert verdict.findings == (), (name, verdict.findings)
        self.check_copies()
        followed = list(self.store.follow())
        positions = [(each.conversation, each.id) for each in followed if not isinstance(each.event, Entry)]
        erased = [each.conversation for each in followed if isinstance(each.event, Erased)]
        assert sorted(erased) == sorted(name for name, model in self.model.items() if model.erased)
        own = [
            (name, n)
            for name, model in self.model.items()
            if not model.erased
            for n in range(model.own, len(model.events))
        ]
        assert sorted(positions) == sorted(own)


def _event(text: str) -> Event:
    kind, _, rest = text.partition(":")
    if kind == "m":
        return Message(source="user", content=rest)
    if kind == "r":
        return CondensationRequest()
    first, last, offset = map(int, rest.split(":"))
    return CondensationAction(
        forgotten_events_start_id=first, forgotten_events_end_id=last, summary=rest, summary_offset=offset
    )


def _text(event: Event) -> str:
    if isinstance(event, Message):
        return f"m:{event.content}"
    return f"f:{event.summary}" if isinstance(event, CondensationAction) else "r:"


def run_sequence(number: int, opened: Callable[[], Store], *, reopens: bool = False) -> None:
    """Run one sequence on a new store. Raises ``AssertionError`` where the store answers otherwise than the model."""
    Trial(number, opened, reopens=reopens).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=1_000)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--url", choices=["memory", "sqlite"], default="memory")
    parser.add_argument("--encrypted", action="store_true")
    asked = parser.parse_args()
    keys = _KEYS if asked.encrypted else None
    for number in range(asked.first, asked.first + asked.sequences):
        with tempfile.TemporaryDirectory() as folder:
            url = "memory:" if asked.url == "memory" else f"sqlite:///{Path(folder) / 'forks.db'}?durability=relaxed"
            try:
                run_sequence(number, partial(open_store, url, keys=keys), reopens=asked.url != "memory")
            except BaseException:
                sys.stdout.write(f"sequence {number} failed\n")
                raise
    sys.stdout.write(f"{asked.sequences} sequences from {asked.first} on, {asked.url}: 0 differences\n")


if __name__ == "__main__":
    main()
