"""Two stores that import, fork, use, redact and erase at random, and that copy all or single
conversations to each other, sometimes killed.

Each record has a word of its own. After each step, both stores are sound, and no word that a store
redacted is there again. After a complete copy, the target has no word that the source redacted.
"""

import random
import re
from contextlib import suppress

import pytest

from foldlog import EventStoreError, Histories
from foldlog.eventstore.maintenance.copy import compare_stores, copy_store
from tests.between import Killed, kill_after
from tests.foldlog.imports.imports import (
    Import,
    bytes_of,
    events_of,
    new_store,
    redact_event,
    set_sizes,
)
from tests.foldlog.imports.sessions_with_secret import line, write
from tests.privacy import erased
from tests.sound import assert_sound

WORD = re.compile(r"w\d+x")
WEIGHTS = {"grow": 4, "fork": 1, "use": 2, "redact": 2, "copy": 5, "copy_one": 3, "erase": 0.5}


class TwoStores:
    def __init__(self, stores, folder, seed):
        self.stores = stores
        self.folder = folder
        self.random = random.Random(seed)
        self.records = 0
        self.files = {"s1": [self.record(None)]}
        self.redacted = {id(store): set() for store in stores}
        self.log = []
        self.write("s1")

    def record(self, previous):
        number = self.records
        self.records += 1
        role = "assistant" if number % 2 else "user"
        parent = None if previous is None else previous["uuid"]
        return {**line(number, f"w{number}x", role), "parentUuid": parent}

    def write(self, name):
        path = write(self.folder / f"{name}.jsonl", self.files[name])
        self.log.append([type(outcome).__name__ for outcome in Import(self.stores[0], [path])])

    def living(self, store):
        return [*Histories(store)]

    def choose(self):
        store = self.random.choice(self.stores)
        return store, self.random.choice(self.living(store) or [None])

    def words(self, store, name):
        words = {*WORD.findall(bytes_of(store, name).decode())}
        if not store.conversation(name, as_stored=True).unmade:
            words.update(WORD.findall(repr(events_of(store, name))))
        return words

    # -- the steps

    def grow(self):
        name = self.random.choice([*self.files])
        lines = self.files[name]
        for _ in range(self.random.randint(1, 4)):
            if self.random.random() < 0.3:  # a damaged line that repeats a word
                lines.append(f"{{bad w{self.random.randrange(self.records)}x")
            lines.append(self.record([line for line in lines if isinstance(line, dict)][-1]))
        self.write(name)

    def fork(self):
        if len(self.files) < 4:
            name = self.random.choice([*self.files])
            lines = self.files[name][: self.random.randint(1, len(self.files[name]))]
            new = f"fork{len(self.files)}"
            self.files[new] = [*lines, self.record(self.files[name][0])]
            self.write(new)

    def use(self):
        store, name = self.choose()
        if name is not None:
            store.version(name)

    def redact(self):
        store, name = self.choose()
        events = [] if name is None else [*store.events(name)]
        with_words = [event for event in events if WORD.search(repr(event))]
        if with_words:
            event = self.random.choice(with_words)
            with suppress(EventStoreError):
                redact_event(store, name, event.id)
                self.redacted[id(store)].update(WORD.findall(repr(event)))

    def erase(self):
        store, name = self.choose()
        if name is not None:
            with suppress(EventStoreError):
                erased(store, name, detach_forks=True)

    def copy_one(self):
        self.copy(is_whole=False)

    def copy(self, is_whole=True):
        source, target = self.random.sample(self.stores, 2)
        names = () if is_whole else self.living(source)[-1:]
        recorder = target.database.recorder
        if self.random.random() < 0.3:
            target.database.recorder = kill_after(recorder, self.random.randint(1, 8))
        try:
            copied = [*copy_store(source, target, *names, jobs=1)]
        except Killed:
            return
        finally:
            target.database.recorder = recorder
        self.log.append([moved.problem for moved in copied])
        if is_whole:
            self.check_copied(source, target, copied)

    # -- what must hold

    def check_copied(self, source, target, copied):
        both = {*self.living(source)} & {*self.living(target)}
        complete = both & {moved.conversation for moved in copied if moved.problem is None}
        for name in complete:
            only_in_target = self.words(target, name) - self.words(source, name)
            assert not only_in_target & self.redacted[id(source)], (name, self.log)
        if all(moved.problem is None for moved in copied):
            assert not [
                comparison for comparison in compare_stores(source, target) if comparison.behind
            ], self.log

    def check(self):
        for store in self.stores:
            assert_sound(store)
            for name in self.living(store):
                assert not self.words(store, name) & self.redacted[id(store)], (name, self.log)

    def run(self, steps):
        """Take steps. Return how many words the stores have redacted."""
        for _ in range(steps):
            (step,) = self.random.choices([*WEIGHTS], [*WEIGHTS.values()])
            self.log.append(step)
            getattr(self, step)()
            self.check()
        return sum(map(len, self.redacted.values()))


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 40), marks=pytest.mark.long)], ids=str
)
def test_no_copy_brings_a_redacted_word_back(seeds, tmp_path, monkeypatch):
    set_sizes(monkeypatch, block=350, copied_blocks=1, transaction=400, events=2, chunk=3)
    redacted = 0
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        with new_store() as one, new_store() as other:
            redacted += TwoStores([one, other], folder, seed).run(16)
    assert redacted > len(seeds) / 2
