"""Take each protection of a store on PostgreSQL out, one at a time, and see a test fail without it.

    python -m tests.postgres.protections [NAME…]

prints a table, as ``tests.crash.protections`` does. Exit status 1 where a test passed all the same.
"""

from __future__ import annotations

import sys

from tests.crash.protections import Protection, main

_POSTGRES = "eventstore/recorders/postgres"
_SQL = "eventstore/recorders/sql/postgresql/queries.sql"
_REKEY = "eventstore/maintenance/rekey.py"
_KEYS = "tests/postgres/test_keys.py"
_FOLLOWERS = "tests/postgres/test_followers.py"
_POSITIONS = "tests/postgres/test_positions.py"
_EPOCHS = "eventstore/recorders/sql/postgresql/0003_epochs.sql"
_SESSIONS = f"{_POSTGRES}/sessions.py"
_INTERRUPTIONS = "tests/postgres/test_interruptions.py"
_RECORDERS = "tests/conformance/test_recorders.py"

PROTECTIONS = {
    "broken-reads": Protection(
        "verify, copy, rekey and audit go on when their connection breaks",
        f"{_POSTGRES}/recorder.py",
        '                self._recover(error, patience, "nothing was read")\n',
        "                raise\n",
        "tests/postgres/test_broken_reads.py",
    ),
    "interrupted": Protection(
        "an exception of a signal handler says that the commit came before it",
        f"{_POSTGRES}/recorder.py",
        "            call.note_on(error)\n",
        "",
        _INTERRUPTIONS,
    ),
    "last-look": Protection(
        "… and does not say so of an earlier commit on the same connection",
        f"{_POSTGRES}/wire.py",
        'if self._queued or "commit" not in self._sent:',
        "if False:",
        _INTERRUPTIONS,
    ),
    "places": Protection(
        "an interruption costs no place in the pool of connections",
        f"{_POSTGRES}/pool.py",
        "                place.wire.close()  # how far its last message was sent is not known\n"
        "            self._leave(place)\n",
        "                place.wire.close()\n",
        _INTERRUPTIONS,
    ),
    "witness": Protection(
        "a commit in doubt is looked for by the rows of its events",
        f"{_POSTGRES}/open_transaction.py",
        "if self.witness is None or self.witness[0] != OF_EVENTS:",
        "if self.witness is None:",
        _KEYS,
    ),
    "key-witness": Protection(
        "a rotation in doubt is looked for by its own sealed key",
        f"{_POSTGRES}/writing.py",
        'self._seen_by("stands_key", bigint(key), sealed_key)',
        'self._seen_by("stands_conversation", bigint(key), salt)',
        f"{_KEYS} -k stored_by_the_next_attempt",
    ),
    "random-keys": Protection(
        "after a promotion, no new conversation is taken for a lost one",
        f"{_POSTGRES}/positions.py",
        "self._key = secrets.randbits(_START_BITS)",
        "self._key = 0",
        "tests/postgres/test_positions.py -k the_same_key",
    ),
    "lock-by-key": Protection(
        "a conversation that is asked for by its key is locked",
        f"{_POSTGRES}/writing.py",
        "if key not in self._locked and not self._lock_by_key(key):",
        "if False:",
        f"{_KEYS} -k appends_wait",
    ),
    "lock-again": Protection(
        "… as what it is once the lock is free",
        f"{_POSTGRES}/writing.py",
        "            if name == locked:\n",
        "            if locked:\n",
        f"{_KEYS} -k locked_as_what_it_became",
    ),
    "compare-key": Protection(
        "a data key replaces only the one that was read, and none of an erased conversation",
        _SQL,
        "WHERE key = $1::bigint AND erased_at IS NULL AND sealed_key IS NOT DISTINCT FROM $5::bytea",
        "WHERE key = $1::bigint AND $5::bytea IS NOT DISTINCT FROM $5::bytea",
        f"{_RECORDERS} -k data_key",
    ),
    "compare-key-sqlite": Protection(
        "… in a SQLite file too",
        "eventstore/recorders/sql/sqlite/queries.sql",
        "AND sealed_key IS ? AND erased_at IS NULL",
        "AND ? IS NOT 'x'",
        f"{_RECORDERS} -k data_key",
    ),
    "rows-of-key": Protection(
        "a row is stored in another form only while its conversation has the key that was read",
        _REKEY,
        "        found, mark = self._current(transaction)\n        if found.redactions",
        "        found, mark = self._found, Mark()\n        if found.redactions",
        "tests/conformance/test_data_keys.py -k rows_are_not_stored",
    ),
    "records-of-key": Protection(
        "… and a record",
        _REKEY,
        "        found, _ = self._current(transaction)\n",
        "        found = self._found\n",
        f"{_KEYS} -k records_do_not_come",
    ),
    "copied-keys": Protection(
        "a copy leaves no idempotency keys in an erased conversation",
        "eventstore/maintenance/copy.py",
        "    found = not_erased(database.find_key(transaction, key))\n",
        "    found = database.find_key(transaction, key)\n",
        "tests/conformance/test_data_keys.py -k idempotency_keys_do_not",
    ),
    "staged": Protection(
        "a rotation of the key finds what imports have staged",
        _REKEY,
        "    return [found.key for found in staged_conversations(recorder)]\n",
        "    return ()\n",
        "tests/conformance/test_data_keys.py -k killed_import",
    ),
    "confirmed": Protection(
        "a follower waits for a standby before it reads on a new connection",
        _SESSIONS,
        'for each in ("begin_confirming", "confirm_durably", "confirm", "commit"):',
        'for each in ("begin_confirming", "confirm_durably", "confirm", "rollback"):',
        f"{_FOLLOWERS} -k came_back",
    ),
    "warned": Protection(
        "… and takes no warning for a confirmation",
        _SESSIONS,
        "        if wire.warned:\n",
        "        if False:\n",
        f"{_FOLLOWERS} -k told_not_to",
    ),
    "promoted": Protection(
        "… and waits again after a promotion",
        _SESSIONS,
        "wire.keeps_its_server and answers[2].get_value(0, 0) is not None",
        "wire.keeps_its_server",
        f"{_FOLLOWERS} -k promoted",
    ),
    "cancelled": Protection(
        "a follower that gives up leaves no session behind",
        _SESSIONS,
        "        wire.cancel()\n",
        "",
        f"{_FOLLOWERS} -k no_session",
    ),
    "again": Protection(
        "a read goes on when its connection breaks in the middle",
        f"{_POSTGRES}/recorder.py",
        '            except (ConnectionLost, TryAgain) as error:\n                self._recover(error, patience, "no',
        '            except ZeroDivisionError as error:\n                self._recover(error, patience, "no',
        f"{_FOLLOWERS} -k middle",
    ),
    "opening": Protection(
        "a store that is being opened waits for its server",
        f"{_POSTGRES}/recorder.py",
        "except (ConnectionLost, TryAgain) as error:\n                if not told:",
        "except TryAgain as error:\n                if not told:",
        f"{_FOLLOWERS} -k as_soon",
    ),
    "timeline": Protection(
        "a backup restored to a point in time gives no position again",
        _EPOCHS,
        "WHERE cluster <> here OR timeline <> now_on\n",
        "WHERE cluster <> here\n",
        f"{_POSITIONS} -k older_than_its",
    ),
    "room": Protection(
        "… also where it is an old one",
        _EPOCHS,
        "            + least(greatest(coalesce(idle_s, 0), 0) << 14, 1::bigint << 38)\n",
        "",
        f"{_POSITIONS} -k leaves_room",
    ),
    "pooled": Protection(
        "nothing is written in an epoch that has ended, also behind a pooler",
        f"{_POSTGRES}/recorder.py",
        '"timeline" if self._prepared else "{schema}.timeline()"',
        '"timeline"',
        f"{_POSITIONS} -k behind_a_pooler",
    ),
    "standby": Protection(
        "… and no connection for writing lives through a promotion",
        f"{_POSTGRES}/greeting.py",
        "    if writable and is_standby == _TRUE:",
        "    if False:",
        f"{_POSITIONS} -k takes_no_writers",
    ),
    "unconfirmed-epoch": Protection(
        "a promoted server is read before it has a standby",
        f"{_POSTGRES}/greeting.py",
        '("begin_writing", "commit_locally", "begin_epoch", "commit")',
        '("begin_writing", "begin_epoch", "commit")',
        f"{_FOLLOWERS} -k promoted_server",
    ),
    "restored": Protection(
        "the role of agents goes on after a restore",
        _EPOCHS,
        "SECURITY DEFINER ",
        "",
        "tests/postgres/test_setup.py -k goes_on_after",
    ),
    "slow": Protection(
        "a guard that is too slow for the server is not asked again and again",
        f"{_POSTGRES}/open_transaction.py",
        "if not 0 < limit_s <= idle_s:",
        "if True:",
        "tests/postgres/test_faults.py -k does_not_wait_for",
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PROTECTIONS))
