"""Damage a store: each answer must then be right or an error.

Only a damaged index may hide events from an answer, and ``verify`` must then report it.

    python -m tests.fuzz.damage [--flips N] [--seed N] [--every-byte]

flips a bit of a small store, anywhere in the file, reads each View, now and at an earlier version, and
each log, verifies the store, and begins again with another bit. ``--every-byte`` flips a bit in each
byte instead of N bits.
"""

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
    """A problem, and the flipped bit or the attack that led to it."""

    problem: str
    cause: object
    detail: str


def make(path, event, length, **settings):
    """Make a store of two conversations in one file."""
    with open_store(f"sqlite:///{path}", **settings) as store:
        store.register(Views(store))
        for name in NAMES:
            for n in range(length):
                store.append(name, event(n), expected_version=n, idempotency_key=f"turn-{n}")


def _event(n):
    """Return an event. There is one of each kind on which a View depends, and the last event takes
    several pages.
    """
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


def outcome_of(call):
    """Return the result of a call, or the class of its error."""
    try:
        return call()
    except EventStoreError as error:
        return type(error)


def contents_of(view):
    return view.version, tuple(view.events), view.unhandled_condensation_request


class Trial:
    """One store, damaged again and again. ``right`` has the answers of the sound store."""

    keys: KeyRing | None = None
    earlier_version = 20

    def __init__(self, folder):
        self._path = folder / "damaged.db"
        self._sound = folder / "sound.db"
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
        """Return what a store answers about its conversations, or the classes of foldlog's errors."""
        views = Views(store)
        answers = {}
        for name in NAMES:
            answers[f"view of {name}"] = outcome_of(
                lambda name=name: contents_of(views.current(name))
            )
            answers[f"earlier view of {name}"] = outcome_of(
                lambda name=name: contents_of(views.at(name, version=self.earlier_version))
            )
            answers[f"log of {name}"] = outcome_of(lambda name=name: tuple(store.log(name)))
        return answers

    def ask_store(self):
        """Return the answers of the damaged store, and the findings of ``verify`` if an answer is not
        right.
        """
        with self._opened("?mode=ro") as store:
            answers = self.answers(store)
            return answers, problems(store) if answers != self.right else []

    def is_wrong(self, question, answer):
        """Return whether an answer is neither right nor an error."""
        return answer != self.right[question] and not isinstance(answer, type)

    def _opened(self, options=""):
        return open_store(f"sqlite:///{self._path}{options}", keys=self.keys)

    def _write(self, content):
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()
        self._path.write_bytes(content)

    def check(self, *, may_hide=False):
        """Yield the problems of the damaged store: wrong answers, errors that are not foldlog's, and
        changed answers for which ``verify`` finds nothing.
        """
        try:
            answers, findings = self.ask_store()
        except EventStoreError:
            self.outcomes["refused"] += 1
            return
        except Exception as error:  # noqa: BLE001 - any other error is a problem
            yield "an error of another kind", repr(error)
            return
        wrong = [
            f"{question}: {answer!r}"[:300]
            for question, answer in answers.items()
            if self.is_wrong(question, answer)
        ]
        if wrong and not may_hide:
            yield "wrong", ", ".join(wrong)
        changed = [
            question for question, answer in answers.items() if answer != self.right[question]
        ]
        self.outcomes["error" if changed else "right"] += 1
        if changed and not findings:
            yield "unnoticed by verify", ", ".join(changed)

    def replace_file(self, content, *, may_hide=False):
        self._write(content)
        yield from self.check(may_hide=may_hide)

    def flip(self, bits):
        for byte, bit in bits:
            content = bytearray(self.sound)
            content[byte] ^= 1 << bit
            may_hide = self.sound[byte - byte % PAGE] in _INDEX_PAGES
            for problem, detail in self.replace_file(bytes(content), may_hide=may_hide):
                yield Failure(problem, (byte, bit), detail)

    def report(self, failures):
        """Print the failures and the number of outcomes; return the exit status."""
        began = time.monotonic()
        failures = list(failures)
        for failure in failures:
            sys.stdout.write(f"{failure}\n")
        counts = ", ".join(
            f"{count:,} {outcome}" for outcome, count in sorted(self.outcomes.items())
        )
        sys.stdout.write(
            f"{counts}; {len(failures):,} failures, in {time.monotonic() - began:.0f} s\n"
        )
        return 1 if failures else 0


def draw_bits(size, count, seed):
    rng = random.Random(seed)
    return ((rng.randrange(size), rng.randrange(8)) for _ in range(count))


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
        size = len(trial.sound)
        bits = draw_bits(size, arguments.flips, arguments.seed)
        if arguments.every_byte:
            rng = random.Random(arguments.seed)
            bits = ((byte, rng.randrange(8)) for byte in range(size))
        return trial.report(trial.flip(bits))


if __name__ == "__main__":
    sys.exit(main())
