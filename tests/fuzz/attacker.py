"""Change an encrypted store without its key. A reader with the key must get the right answer or an
error.

    python -m tests.fuzz.attacker [--every N]

The attacker can write the file and knows everything but the key, so every checksum is corrected. An
attack changes a column of a row; deletes, duplicates or swaps rows, or moves them to another
conversation; cuts off the end of a conversation; or forges plain rows, revisions, idempotency keys and
marks (``attacks.txt``, ``attacks.py``). After each attack the store is opened with the key. The trial
reads each View, now and at an earlier version, each history and the followed events, repeats a turn,
and appends a new one. A wrong answer is a failure. A changed answer is a failure if ``verify`` finds
nothing.

Some attacks cannot be detected and are not tried (docs/PRIVACY.md): removing a whole conversation,
restoring an earlier state of it, and changing the order and the number of followed events.
"""

import argparse
import sqlite3
import sys
import tempfile
from contextlib import closing
from itertools import islice
from pathlib import Path

from msgspec import structs
from pydantic import SecretStr

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    CondensationRequest,
    KeyRing,
    Message,
    StoreRestored,
)
from tests.fuzz import attacks, damage
from tests.fuzz.damage import NAMES, Failure, outcome_of
from tests.sound import problems

KEYS = KeyRing([SecretStr("5e" * 32)])
LENGTH = 14


def _event(n):
    match n:
        case 4 | 10:
            return CondensationAction(
                forgotten_event_ids=[n - 2, n - 1], summary=f"summary {n}", summary_offset=1
            )
        case 8:
            return CondensationRequest()
        case 6 | 13:
            return Annotation(name="note", data={"n": n, "bytes": b"raw" * 10})
        case 7:
            return _event(5)  # the same content under another idempotency key
        case _:
            return Message(source="user", content=f"message {n} " + "x" * n)


def _forged(n):
    return Message(source="user", content=f"forged {n}") if n in (0, 1, 2, 5, 12) else _event(n)


def _comparable(row):
    """Return a followed event in a form that can be compared between trials: without the time of the
    new turn.
    """
    event = structs.replace(row.event, timestamp=None) if row.id == LENGTH else row.event
    return row.conversation, row.id, event


def _append_turn(store, name, expected, turn):
    (recorded,) = store.append(
        name, _event(5), expected_version=expected, idempotency_key=f"turn-{turn}"
    )
    return recorded


class Trial(damage.Trial):
    """One encrypted store. Each attack gets a copy."""

    keys = KEYS
    earlier_version = 9

    def make(self):
        self._own = self._sound.with_name("own.db")
        damage.make(self._sound, _event, LENGTH, keys=KEYS, compression="none")
        damage.make(self._own, _forged, LENGTH, compression="none")
        for path in (self._sound, self._own):
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA journal_mode = DELETE")

    def answers(self, store):
        answers = super().answers(store)
        for name in NAMES:
            answers[f"a turn of {name} again"] = outcome_of(
                lambda name=name: _append_turn(store, name, 5, 5).event
            )
            answers[f"a new turn of {name}"] = outcome_of(
                lambda name=name: _append_turn(store, name, LENGTH, "new").id
            )
        # the first writer of a copied file adds an entry that says so
        answers["follow"] = outcome_of(
            lambda: frozenset(
                repr(_comparable(row))
                for row in store.follow()
                if not isinstance(row.event, StoreRestored)
            )
        )
        return answers

    def ask_store(self):
        with self._opened("?mode=ro") as store:
            findings = problems(store)
        with self._opened() as store:
            return self.answers(store), findings

    def is_wrong(self, question, answer):
        """Return whether an answer is neither right nor an error. Followed events may be missing."""
        is_wrong = super().is_wrong(question, answer)
        return is_wrong and (question != "follow" or not answer <= self.right["follow"])

    def attacks(self):
        with closing(sqlite3.connect(self._sound)) as connection:
            yield from attacks.of_columns(connection)
            yield from attacks.of_rows(connection)
            yield from attacks.of_statements(connection, LENGTH)
            yield from attacks.of_proofs(connection)

    def run(self, named_attacks):
        for name, attack in named_attacks:
            self._write(self.sound)
            if self._commit(attack):
                for problem, detail in self.check():
                    yield Failure(problem, name, detail)

    def _commit(self, attack):
        """Make an attack, and return whether the database allows it."""
        with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("ATTACH ? AS own", (str(self._own),))
            connection.execute("BEGIN")
            try:
                attack(connection)
            except sqlite3.IntegrityError:
                self.outcomes["impossible"] += 1
                return False
            attacks.make_checksums_right(connection)
            connection.execute("COMMIT")
        return True


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1, help="only every Nth attack")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(Path(folder))
        return trial.report(trial.run(islice(trial.attacks(), 0, None, arguments.every)))


if __name__ == "__main__":
    sys.exit(main())
