"""The protections of a store on PostgreSQL: see ``tests.protections``."""

from __future__ import annotations

from tests.protections import Always, Gone, Instead, Never, Part, Protection

_KEYS = "tests/postgres/test_keys.py"
_FOLLOWERS = "tests/postgres/test_followers.py"
_POSITIONS = "tests/postgres/test_positions.py"
_INTERRUPTIONS = "tests/postgres/test_interruptions.py"
PROTECTIONS = {
    "broken-reads": Protection(
        "verify, copy, rekey and audit go on when their connection breaks",
        "eventstore:PostgresRecorder._retried",
        Instead("_recover", "raise"),
        "tests/postgres/test_broken_reads.py",
    ),
    "interrupted": Protection(
        "an exception of a signal handler says that the commit came before it",
        "eventstore:PostgresRecorder._run",
        Gone("note_on"),
        _INTERRUPTIONS,
    ),
    "places": Protection(
        "an interruption costs no place in the pool of connections",
        "eventstore:Pool.wire",
        Gone("_end"),
        _INTERRUPTIONS,
    ),
    "witness": Protection(
        "a commit in doubt is looked for by the rows of its events",
        "eventstore:OpenTransaction._seen_by",
        Part("OF_EVENTS"),
        _KEYS,
    ),
    "key-witness": Protection(
        "a rotation in doubt is looked for by its own sealed key",
        "eventstore:PostgresTransaction.set_key",
        Instead("stands_key", 'self._seen_by("stands_conversation", key, salt)'),
        f"{_KEYS} -k stored_by_the_next_attempt",
    ),
    "random-keys": Protection(
        "after a promotion, no new conversation is taken for a lost one",
        "eventstore:Positions.__init__",
        Instead("_key", "self._key = 0"),
        "tests/postgres/test_positions.py -k the_same_key",
    ),
    "lock-by-key": Protection(
        "a conversation that is asked for by its key is locked",
        "eventstore:PostgresTransaction.conversation",
        Never("_lock_by_key"),
        f"{_KEYS} -k appends_wait",
    ),
    "lock-again": Protection(
        "… as what it is once the lock is free",
        "eventstore:PostgresTransaction._lock_by_key",
        Instead("_lock_on", "self._lock_on(*name)\nbreak"),
        f"{_KEYS} -k locked_as_what_it_became",
    ),
    "copied-keys": Protection(
        "a copy leaves no idempotency keys in an erased conversation",
        "eventstore:_write_beside",
        Instead("not_erased", "found = database.find_key(transaction, key)"),
        "tests/conformance/test_data_keys.py -k idempotency_keys_do_not",
    ),
    "staged": Protection(
        "a rotation of the key discards what imports have staged",
        "eventstore.maintenance.rekey:rekey",
        Gone("delete_rows"),
        "tests/conformance/test_data_keys.py -k killed_import",
    ),
    "confirmed": Protection(
        "a follower waits for a standby before it reads on a new connection",
        "eventstore:_confirmed",
        Instead(
            "begin_confirming",
            'for each in ("begin_confirming", "confirm_durably", "confirm", "rollback"):',
        ),
        f"{_FOLLOWERS} -k came_back",
    ),
    "warned": Protection(
        "… and takes no warning for a confirmation",
        "eventstore:_confirmed",
        Never("warned"),
        f"{_FOLLOWERS} -k told_not_to",
    ),
    "promoted": Protection(
        "… and waits again after a promotion",
        "eventstore:_confirmed",
        Part("rows"),
        f"{_FOLLOWERS} -k promoted",
    ),
    "cancelled": Protection(
        "a follower that gives up leaves no session behind",
        "eventstore:_confirmed",
        Gone("cancel"),
        f"{_FOLLOWERS} -k no_session",
    ),
    "again": Protection(
        "a read goes on when its connection breaks in the middle",
        "eventstore:PostgresRecorder._retried",
        Never("ConnectionLost TryAgain"),
        f"{_FOLLOWERS} -k middle",
    ),
    "opening": Protection(
        "a store that is being opened waits for its server",
        "eventstore:PostgresRecorder._prepare",
        Never("ConnectionLost TryAgain"),
        f"{_FOLLOWERS} -k as_soon",
    ),
    "pooled": Protection(
        "nothing is written in an epoch that has ended, also behind a pooler",
        "eventstore:PostgresRecorder._statements_here",
        Instead(
            "timeline schema",
            'changed = {"{here}": "{schema}.here()", "{timeline}": "timeline"}',
        ),
        f"{_POSITIONS} -k behind_a_pooler",
    ),
    "standby": Protection(
        "… and no connection for writing lives through a promotion",
        "eventstore:_check_server",
        Never("is_standby"),
        f"{_POSITIONS} -k takes_no_writers",
    ),
    "unconfirmed-epoch": Protection(
        "a promoted server is read before it has a standby",
        "eventstore:_begin_epoch",
        Instead("commit_locally", 'for statement in ("begin_writing", "begin_epoch", "commit"):'),
        f"{_FOLLOWERS} -k promoted_server",
    ),
    "slow": Protection(
        "a guard that is too slow for the server is not asked again and again",
        "eventstore:OpenTransaction._answers",
        Always("limit_s"),
        "tests/postgres/test_faults.py -k does_not_wait_for",
    ),
    "timeline": Protection(
        "a backup restored to a point in time gives no position again",
        "postgresql/0001_first.sql:begin_epoch",
        Instead("cluster timeline now_on WHERE", "    WHERE cluster <> here"),
        f"{_POSITIONS} -k older_than_its",
    ),
    "room": Protection(
        "… also where it is an old one",
        "postgresql/0001_first.sql:begin_epoch",
        Gone("least greatest"),
        f"{_POSITIONS} -k leaves_room",
    ),
    "restored": Protection(
        "the role of agents goes on after a restore",
        "postgresql/0001_first.sql:begin_epoch",
        Instead("SECURITY DEFINER", "LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp"),
        "tests/postgres/test_setup.py -k goes_on_after",
    ),
}
