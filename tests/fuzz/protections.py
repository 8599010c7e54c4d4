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
        "eventstore/stored/hash_chain.py",
        "            if check != crc32(body, crc32(fields + kind",
        "            if False and check != crc32(body, crc32(fields + kind",
        _DAMAGE,
    ),
    "counts": Protection(
        "rows of a View count on",
        "eventstore/transaction.py",
        "if odd is not None or at_last - at_first != len(some):",
        "if False:",
        _DAMAGE,
    ),
    "outside": Protection(
        "an index leads to nothing outside of what was asked for",
        "eventstore/transaction.py",
        "if sum(len(some) for _, _, some in found) != len(rows):",
        "if False:",
        _DAMAGE,
    ),
    "end": Protection(
        "an end that an index hides is not believed", "eventstore/stored/guard.py", "if found.astray or", "if", _DAMAGE
    ),
    "heads": Protection(
        "verify compares heads", "eventstore/stored/hash_chain.py", "link.digest() != own\n", "False\n", _VERIFICATION
    ),
    "published": Protection(
        "… with those that were published",
        "eventstore/maintenance/verify.py",
        "elif version in chain.wanted and not chain.suspects:",
        "elif False:",
        _VERIFICATION,
    ),
    "cut": Protection(
        "… and their versions",
        "eventstore/maintenance/verify.py",
        "if version > found.version:",
        "if False:",
        _VERIFICATION,
    ),
    "innocent": Protection(
        "who follows a swapped event is not blamed",
        "eventstore/maintenance/diagnosis.py",
        "if fits and self._follows_another(event_id):",
        "if False:",
        _VERIFICATION,
    ),
    "unproved": Protection(
        "behind a gap no head proves a damaged row",
        "eventstore/maintenance/row_checks.py",
        "if self._head is not None and self._is_as_written(",
        "if self._is_as_written(",
        _VERIFICATION,
    ),
    "stranger": Protection(
        "who stands behind a stranger is not said to be proved",
        "eventstore/maintenance/diagnosis.py",
        "return UNPROVEN if fits",
        "return None if fits",
        _VERIFICATION,
    ),
    "salt": Protection(
        "a changed salt is told from changed events",
        "eventstore/maintenance/verify.py",
        "if salt and chain.suspects and not chain.proved:",
        "if False:",
        _VERIFICATION,
    ),
    "impossible-keys": Protection(
        "a key stands for events that can be",
        "eventstore/maintenance/verify.py",
        " or first < 0 or count < 1:",
        ":",
        _VERIFICATION,
    ),
    "hidden": Protection(
        "a conversation that was seen cannot be hidden",
        "eventstore/recorders/sqlite/upkeep.py",
        'for (name,) in reader.execute(SQL["hidden"]):',
        "for (name,) in ():",
        _VERIFICATION,
    ),
    "many": Protection(
        "the time of a verification is that of the events",
        "eventstore/maintenance/diagnosis.py",
        "    if not single:\n        return\n",
        "",
        _VERIFICATION,
    ),
    "empty": Protection(
        "an empty file is no store to those who read",
        "eventstore/recorders/sqlite/recorder.py",
        "if not create and is_empty(self.path):",
        "if False:",
        "tests/eventstore/test_sqlite.py -k nothing_is_left",
    ),
    "exact": Protection(
        "a field that a user names $exact is not interpreted",
        "eventstore/codec.py",
        "if _EXACT in fields or not _is_json(fields):",
        "if not _is_json(fields):",
        "tests/eventstore/test_codec.py -k named_exact",
    ),
    "exact-beside": Protection(
        "an exact form counts only beside what was made of it",
        "eventstore/codec.py",
        "if exact is None or _with_exact(exact) != body:",
        "if exact is None:",
        "tests/eventstore/test_codec.py -k counts_only_beside",
    ),
    "exact-first-form": Protection(
        "… also where an earlier version wrote it",
        "eventstore/codec.py",
        "return exact if _encoder.encode({**_readable(exact), _EXACT: value[_EXACT]}) == body else None",
        "return exact",
        "tests/eventstore/test_codec.py -k counts_only_beside",
    ),
    "own-fields": Protection(
        "an extra field does not take the place of one of the event's own",
        "eventstore/codec.py",
        'if name in event.__struct_encode_fields__ or name == "kind":',
        "if False:",
        "tests/eventstore/test_codec.py -k take_the_place",
    ),
    "places": Protection(
        "a sealed body is of its place",
        "eventstore/stored/row_codec.py",
        'encrypt(nonce, body, what + b" of " + self._place)\n\n    def open',
        "encrypt(nonce, body, self._place)\n\n    def open",
        _SEALING,
    ),
    "sealed-salt": Protection(
        "the salt is sealed with the key",
        "eventstore/stored/guard.py",
        'set_key(key, b"", keys.current, sealed, replaces=found.sealed_key)',
        "set_key(key, found.salt, keys.current, sealed, replaces=found.sealed_key)",
        _SEALING,
    ),
    "uncommitted-key": Protection(
        "a data key that was not committed seals nothing",
        "eventstore/stored/guard.py",
        "        seen = self._seen.get(found.key)\n        if seen is None or seen.sealed_key != found.sealed_key:\n",
        "        seen = (seen_by_all := self._vault._by_key).get(found.key)\n        self._seen = seen_by_all\n"
        "        if seen is None:\n",
        f"{_SEALING} -k never_committed",
    ),
    "staged-seal": Protection(
        "what a killed import left is sealed too",
        "eventstore/maintenance/rekey.py",
        "        if staged is not None:\n",
        "        if False:\n",
        f"{_SEALING} -k killed_import",
    ),
    "quiet-keys": Protection(
        "an error does not show the key",
        "eventstore/stored/keys.py",
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
        "eventstore/maintenance/erase.py",
        'purge(recorder, patience_s, f"conversation',
        'True or purge(recorder, patience_s, f"conversation',
        _ERASURE,
    ),
    "staged": Protection(
        "imports that are going on are erased too",
        "eventstore/maintenance/erase.py",
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
        "an archive's heads are computed again",
        "eventstore/maintenance/copy.py",
        "if head != row.head:",
        "if False:",
        _ARCHIVES,
    ),
    "carried-events": Protection(
        "and its events are looked at",
        "foldlog/archives/lines.py",
        "if (event.shown, is_structural(event)) != (read.shown, read.structural):",
        "if False:",
        _ARCHIVES,
    ),
    "private": Protection(
        "an archive is its owner's, whatever lies there",
        "foldlog/archives/writing.py",
        'tempfile.mkstemp(prefix=f"{path.name[:100]}.", suffix=".partial", dir=path.parent)',
        'os.open(f"{path}.partial", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), f"{path}.partial"',
        _ARCHIVES,
    ),
    "one-page": Protection(
        "a page that cannot be read costs one conversation",
        "eventstore/maintenance/copy.py",
        "            if not is_damage(error):\n                raise\n",
        "            raise\n",
        _ARCHIVES,
    ),
    "long-lines": Protection(
        "a line has an end", "foldlog/archives/lines.py", "if len(rest) > length_max:", "if False:", _ARCHIVES
    ),
    "lost": Protection(
        "salvage takes no event that verify does not believe",
        "eventstore/maintenance/salvage.py",
        "if stored.id in self._unsound:",
        "if False:",
        _SALVAGE,
    ),
    "strangers": Protection(
        "checksums say whose events are whose",
        "eventstore/recorders/sqlite/carving.py",
        "next((name for name in self._candidates(key) if _is_sound(self._seeds[name], row)), None)",
        "next(iter(self._named.get(key, ())), None)",
        f"{_SALVAGE} -k checksums_say_whose",
    ),
    "put-back": Protection(
        "an event that stands elsewhere is put back",
        "eventstore/recorders/sqlite/carving.py",
        "if written is not None:",
        "if False:",
        _SALVAGE,
    ),
    "impossible": Protection(
        "what cannot be does not come over",
        "eventstore/maintenance/salvage.py",
        "if found.created_at and is_moment(found.created_at) else",
        "if found.created_at else",
        _SALVAGE,
    ),
    "lost-condensations": Protection(
        "a lost condensation stops a View",
        "eventstore/maintenance/salvage.py",
        "if structural is None else n < structural",
        "and False",
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
