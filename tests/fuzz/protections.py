"""Take each protection against damage and leaks out, one at a time, and see a test fail for want of it.

    python -m tests.fuzz.protections [NAME…]

prints a table, as ``tests.crash.protections`` does. Exit status 1 where a test passed all the same.
"""

from __future__ import annotations

import sys

from tests.crash.protections import Protection, main

_VERIFICATION = "tests/eventstore/test_verification.py"
_SEALING = "tests/eventstore/test_sealing.py"
_ERASURE = "tests/eventstore/test_erasure.py"
_SALVAGE = "tests/eventstore/test_salvage.py"
_ARCHIVES = "tests/foldlog/test_archives.py"
_TRUST = "tests/foldlog/test_trust.py"
_DAMAGE = "tests/fuzz/test_damage.py"
_SQL = "eventstore/recorders/sql/sqlite/queries.sql"

PROTECTIONS = {
    "checksums": Protection(
        "every read checks every row",
        "eventstore/integrity.py",
        "            if check != crc32(body, crc32(fields + kind",
        "            if False and check != crc32(body, crc32(fields + kind",
        _DAMAGE,
    ),
    "counts": Protection(
        "rows of a View count on",
        "eventstore/snapshot.py",
        "if odd is not None or at_last - at_first != len(some):",
        "if False:",
        _DAMAGE,
    ),
    "outside": Protection(
        "an index leads to nothing outside of what was asked for",
        "eventstore/snapshot.py",
        "if sum(len(some) for _, _, some in found) != len(rows):",
        "if False:",
        _DAMAGE,
    ),
    "end": Protection(
        "an end that an index hides is not believed", "eventstore/guard.py", "if found.astray or", "if", _DAMAGE
    ),
    "heads": Protection(
        "verify compares heads", "eventstore/integrity.py", "link.digest() != own\n", "False\n", _VERIFICATION
    ),
    "published": Protection(
        "… with those that were published",
        "eventstore/verification.py",
        "elif version in chain.wanted and not chain.suspects:",
        "elif False:",
        _VERIFICATION,
    ),
    "cut": Protection(
        "… and their versions", "eventstore/verification.py", "if version > found.version:", "if False:", _VERIFICATION
    ),
    "innocent": Protection(
        "who follows a swapped event is not blamed",
        "eventstore/diagnosis.py",
        "if self._follows_another(event_id):",
        "if False:",
        _VERIFICATION,
    ),
    "places": Protection(
        "a sealed body is of its place",
        "eventstore/sealing.py",
        'encrypt(nonce, body, what + b" of " + self._place)\n\n    def open',
        "encrypt(nonce, body, self._place)\n\n    def open",
        _SEALING,
    ),
    "sealed-salt": Protection(
        "the salt is sealed with the key",
        "eventstore/guard.py",
        'set_key(key, b"", keys.current, sealed)',
        "set_key(key, found.salt, keys.current, sealed)",
        _SEALING,
    ),
    "quiet-keys": Protection(
        "an error does not show the key",
        "eventstore/keys.py",
        'raise KeyUnavailable(f"{where} holds a text of',
        'raise KeyUnavailable(f"{text} {where} holds a text of',
        _SEALING,
    ),
    "overwritten": Protection(
        "deleted cells are overwritten",
        "eventstore/recorders/sqlite/connections.py",
        "secure_delete = ON",
        "secure_delete = OFF",
        _ERASURE,
    ),
    "log": Protection(
        "the write-ahead log is emptied",
        "eventstore/erasure.py",
        "    purge(recorder, patience_s",
        "    0 and purge(recorder, patience_s",
        _ERASURE,
    ),
    "staged": Protection(
        "imports that are going on are erased too",
        "eventstore/erasure.py",
        "    _discard_staged(recorder",
        "    0 and _discard_staged(recorder",
        _ERASURE,
    ),
    "audit": Protection(
        "and the audit database", "foldlog/cli/erase.py", "update(store, audit, [conversation])", "pass", _TRUST
    ),
    "followers": Protection(
        "nobody follows what is being erased",
        _SQL,
        "AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = e.conversation AND c.erased_at IS NOT NULL)",
        "",
        "tests/conformance/test_recorders.py -k followed_by_nobody",
    ),
    "carried-heads": Protection(
        "an archive's heads are computed again", "eventstore/copying.py", "if head != row.head:", "if False:", _ARCHIVES
    ),
    "carried-events": Protection(
        "and its events are looked at",
        "foldlog/archives/lines.py",
        "if (event.shown, is_structural(event)) != (read.shown, read.structural):",
        "if False:",
        _ARCHIVES,
    ),
    "long-lines": Protection(
        "a line has an end", "foldlog/archives/lines.py", "if len(rest) > length_max:", "if False:", _ARCHIVES
    ),
    "lost": Protection(
        "salvage takes no event that verify does not believe",
        "eventstore/salvage.py",
        "if row.encoding != PLAIN or self._is_unsound(row.id):",
        "if row.encoding != PLAIN:",
        _SALVAGE,
    ),
    "lost-condensations": Protection(
        "a lost condensation stops a View",
        "eventstore/salvage.py",
        "was_structural = n < structural if",
        "was_structural = False if",
        _SALVAGE,
    ),
    "whole-log": Protection(
        "of a log, only whole transactions are read",
        "eventstore/recorders/sqlite/pages.py",
        "if frame_salts != salts or sums != (one, two):",
        "if frame_salts != salts:",
        _SALVAGE,
    ),
    "terminal": Protection(
        "nothing steers a terminal",
        "foldlog/cli/terminal.py",
        "return (_STEERS_OR_BREAKS if one_line else _STEERS).sub(_escape, text)",
        "return text",
        _TRUST,
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PROTECTIONS))
