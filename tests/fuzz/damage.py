"""Spoils a store and looks at what becomes of it: right answers or errors, and nothing else.

Only an index that was changed may hide events from an answer. ``verify`` must then name it.

    python -m tests.fuzz.damage [--flips N] [--seed N] [--every-byte]

flips single bits of a small store, anywhere in the file, and after each asks for every View, now
and at an earlier version, for every log, and for a verification. ``--every-byte`` flips a bit in
each byte instead of in N of them.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    CondensationRequest,
    EventStoreError,
    KeyRing,
    Message,
    Observation,
    open_store,
)
from foldlog.projections import Views
from tests.sound import assert_sound, problems

NAMES = ("alpha", "beta")
LENGTH = 30
PAGE = 4_096
_INDEX_PAGES = (2, 10)
"""The first byte of a page of an index (https://sqlite.org/fileformat2.html#b_tree_pages)."""


class Failure(NamedTuple):
    """What must not happen, and after what: a bit that was flipped, or an attack."""

    what: str
    after: object
    detail: str


def make(path, event, length, **settings):
    """A store of two conversations, complete in one file."""
    with open_store(f"sqlite:///{path}", **settings) as store:
        store.register(Views(store))
        for name in NAMES:
            for n in range(length):
                store.append(name, event(n), expected_version=n, idempotency_key=f"turn-{n}")


def _event(n):
    """An event of each kind on which a View depends; the last one takes several pages."""
    if n == LENGTH - 1:
        return Observation(content="long " * 2_000)
    if n == 12:
        return CondensationAction(
            forgotten_event_ids=(1, 2, 3, 5), summary="what was first", summary_offset=1
        )
    if n == 22:
        return CondensationAction(
            forgotten_events_start_id=6,
            forgotten_events_end_id=11,
            summary="and then",
            summary_offset=1,
        )
    if n == 26:
        return CondensationRequest()
    if n % 7 == 3:
        return Annotation(name="note", data={"n": n})
    return Message(source="user", content=f"message {n} " + "x" * (n * 37 % 400))


def outcome_of(ask):
    try:
        return ask()
    except EventStoreError as error:
        return type(error)


def contents_of(view):
    return view.version, tuple(view.events), view.unhandled_condensation_request


class Trial:
    """One store, spoilt again and again. ``right`` are the answers of the sound one."""

    keys: KeyRing | None = None
    earlier = 20

    def __init__(self, folder):
        self._path, self._sound = folder / "spoilt.db", folder / "sound.db"
        self.make()
        self.sound = self._sound.read_bytes()
        self._write(self.sound)
        with self._opened() as store:
            assert_sound(store)
            self.right = self.answers(store)
        assert not any(isinstance(answer, type) for answer in self.right.values())
        self.outcomes = Counter()

    def make(self):
        make(self._sound, _event, LENGTH)

    def answers(self, store):
        """What a store says about its conversations; an error of ours by its name."""
        views = Views(store)
        answers = {}
        for name in NAMES:
            answers[f"view of {name}"] = outcome_of(
                lambda name=name: contents_of(views.current(name))
            )
            answers[f"earlier view of {name}"] = outcome_of(
                lambda name=name: contents_of(views.at(name, version=self.earlier))
            )
            answers[f"log of {name}"] = outcome_of(lambda name=name: tuple(store.log(name)))
        return answers

    def ask_store(self):
        """Return what the spoilt store says, and where that is not the truth what its verification
        finds.
        """
        with self._opened("?mode=ro") as store:
            answers = self.answers(store)
            return answers, problems(store) if answers != self.right else []

    def is_wrong(self, question, answer):
        """Whether an answer is neither an error nor the truth."""
        return answer != self.right[question] and not isinstance(answer, type)

    def _opened(self, options=""):
        return open_store(f"sqlite:///{self._path}{options}", keys=self.keys)

    def _write(self, content):
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()
        self._path.write_bytes(content)

    def look(self, *, may_hide=False):
        """What must not happen: a wrong answer, an error that is not ours, damage that goes
        unnoticed.
        """
        try:
            answered, findings = self.ask_store()
        except EventStoreError:
            self.outcomes["refused"] += 1
            return
        except Exception as error:  # noqa: BLE001 - any other error is what is looked for
            yield "an error of another kind", repr(error)
            return
        wrong = [
            question for question, answer in answered.items() if self.is_wrong(question, answer)
        ]
        if wrong and not may_hide:
            yield (
                "wrong",
                ", ".join(f"{question}: {answered[question]!r}"[:300] for question in wrong),
            )
        changed = [
            question for question, answer in answered.items() if answer != self.right[question]
        ]
        self.outcomes["error" if changed else "right"] += 1
        if changed and not findings:
            yield "unnoticed by verify", ", ".join(changed)

    def spoil(self, content, *, an_index=False):
        self._write(content)
        yield from self.look(may_hide=an_index)

    def flip(self, places):
        for byte, bit in places:
            content = bytearray(self.sound)
            content[byte] ^= 1 << bit
            an_index = self.sound[byte - byte % PAGE] in _INDEX_PAGES
            for what, detail in self.spoil(bytes(content), an_index=an_index):
                yield Failure(what, (byte, bit), detail)

    def report(self, trials):
        """Say what must not have happened, and how much did; return the status to exit with."""
        began, failures = time.monotonic(), list(trials)
        for failure in failures:
            sys.stdout.write(f"{failure}\n")
        counts = ", ".join(
            f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items())
        )
        sys.stdout.write(
            f"{counts}; {len(failures):,} failures, in {time.monotonic() - began:.0f} s\n"
        )
        return 1 if failures else 0


def places(size, count, seed):
    at = random.Random(seed)
    return ((at.randrange(size), at.randrange(8)) for _ in range(count))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flips", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every-byte", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        size, at = len(trial.sound), random.Random(arguments.seed)
        each = ((byte, at.randrange(8)) for byte in range(size))
        return trial.report(
            trial.flip(
                each if arguments.every_byte else places(size, arguments.flips, arguments.seed)
            )
        )


if __name__ == "__main__":
    sys.exit(main())
