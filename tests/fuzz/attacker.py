"""Changes an encrypted store without its key, and looks at what is read with the key: the truth, or
an error.

    python -m tests.fuzz.attacker [--every N]

The attacker can write the file and knows everything but the key: he makes every checksum right
again. Each column of each row of each table is changed; rows are deleted, duplicated, swapped and
moved to another conversation; ends are cut off; plain rows, revisions, idempotency keys and marks
are forged (``attacks.txt``, ``attacks.py``). After each change the store is opened with the key and asked for every
View, now and at an earlier version, every history, a turn that is tried again, a new turn, and what
is followed. A wrong answer is a failure, and so is a changed answer that ``verify`` says nothing
of.

What cannot be noticed is left out here, and said in docs/PRIVACY.md: a conversation that is removed
whole or put back as it was, and in which order and how many events are followed.
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
            return _event(5)  # the same words again, under another key
        case _:
            return Message(source="user", content=f"message {n} " + "x" * n)


def _forged(n):
    return Message(source="user", content=f"forged {n}") if n in (0, 1, 2, 5, 12) else _event(n)


def _followed(each):
    """What is followed; the new turn without its time, which is another in each trial."""
    event = structs.replace(each.event, timestamp=None) if each.id == LENGTH else each.event
    return each.conversation, each.id, event


def _turn(store, name, expected, turn):
    (recorded,) = store.append(
        name, _event(5), expected_version=expected, idempotency_key=f"turn-{turn}"
    )
    return recorded


# -- the trial
# --------------------------------------------------------------------------------------------------


class Trial(damage.Trial):
    """One encrypted store, attacked again and again."""

    keys, earlier = KEYS, 9

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
                lambda name=name: _turn(store, name, 5, 5).event
            )
            answers[f"a new turn of {name}"] = outcome_of(
                lambda name=name: _turn(store, name, LENGTH, "new").id
            )
        # Each trial is in a copy of the file, and its first writer says so.
        followed = outcome_of(
            lambda: [
                _followed(entry)
                for entry in store.follow()
                if not isinstance(entry.event, StoreRestored)
            ]
        )
        answers["follow"] = (
            followed if isinstance(followed, type) else frozenset(map(repr, followed))
        )
        return answers

    def ask_store(self):
        with self._opened("?mode=ro") as store:
            findings = problems(store)
        with self._opened() as store:
            return self.answers(store), findings

    def is_wrong(self, question, answer):
        """Whether an answer is neither an error nor the truth. Of what is followed some may be
        missing.
        """
        is_wrong = super().is_wrong(question, answer)
        return is_wrong and (question != "follow" or not answer <= self.right["follow"])

    def attacks(self):
        with closing(sqlite3.connect(self._sound)) as connection:
            yield from attacks.of_columns(connection)
            yield from attacks.of_rows(connection)
            yield from attacks.of_statements(connection, LENGTH)
            yield from attacks.of_proofs(connection)

    def run(self, some):
        for name, attack in some:
            self._write(self.sound)
            if self._is_done(attack):
                for what, detail in self.look():
                    yield Failure(what, name, detail)

    def _is_done(self, attack):
        """Whether the database lets it be done."""
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
