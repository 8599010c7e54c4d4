"""Take each protection against damage and leaks out, one at a time, and see a test fail for want of it.

    python -m tests.fuzz.protections [NAME…]

prints a table, as ``tests.crash.protections`` does. Exit status 1 where a test passed all the same.
"""

from __future__ import annotations

import sys

from tests.crash.protections import Protection, main

_VERIFICATION = "tests/eventstore/test_verification.py"
_ENCRYPTION = "tests/eventstore/test_encryption.py"
_REKEY = "tests/conformance/test_rekey.py"
_ATTACKER = "tests/fuzz/test_attacker.py"
_ERASURE = "tests/eventstore/test_erasure.py"
_SALVAGE = "tests/eventstore/test_salvage.py"
_ARCHIVES = "tests/foldlog/test_archives.py"
_TRUST = "tests/foldlog/test_trust.py"
_PRIVATE = "tests/foldlog/test_private_files.py"
_DAMAGE = "tests/fuzz/test_damage.py"
_SQL = "eventstore/recorders/sql/sqlite/queries.sql"

PROTECTIONS = {
    "bytes-compared": Protection(
        "bytes beside an event are those that its body names",
        "eventstore/stored/row_codec.py",
        "missing = listed - {each.name for each in beside}",
        "missing = set()",
        "tests/conformance/test_bytes.py -k lost_or_changed",
    ),
    "bytes-marker": Protection(
        "a list of bytes that a user writes is a value like any other",
        "eventstore/values/bodies.py",
        "if not body.startswith(_BEGINS):",
        "if _BEGINS[1:] not in body:",
        "tests/conformance/test_bytes.py -k marker_of_ours and plain-memory",
    ),
    "bytes-name": Protection(
        "an encrypted store does not tell whether it has known bytes",
        "eventstore/stored/row_codec.py",
        "name = self.data_key.name_of(plain.name)",
        "name = plain.name",
        "tests/conformance/test_bytes.py -k nor_their_hash and memory",
    ),
    "checksums": Protection(
        "every read checks every row",
        "eventstore/stored/hash_chain.py",
        "            if check != crc32(body, crc32(fields + kind",
        "            if False and check != crc32(body, crc32(fields + kind",
        _DAMAGE,
    ),
    "checksums-at-once": Protection(
        "… also of a fork, where rows of several conversations are checked at once",
        "eventstore/stored/rows.py",
        " or not hash_chain.are_sound(seeds, bare)",
        "",
        "tests/eventstore/test_forks.py -k is_not_shown",
    ),
    "counts": Protection(
        "rows of a View count on",
        "eventstore/stored/read_transaction.py",
        "if counts != list(range(at_first, at_last)):",
        "if False:",
        _DAMAGE,
    ),
    "outside": Protection(
        "an index leads to nothing outside of what was asked for",
        "eventstore/stored/read_transaction.py",
        "if among != len(ids):",
        "if False:",
        _DAMAGE,
    ),
    "end": Protection(
        "an end that an index hides is not believed",
        "eventstore/stored/database.py",
        "if found.astray or",
        "if",
        _DAMAGE,
    ),
    "end-of-known": Protection(
        "a conversation counts as known only where it is still the same",
        "eventstore/recorders/sqlite/reader.py",
        "if found is not None and found == (",
        "if found is not None and found != (",
        f"{_VERIFICATION} -k while_the_store_is_open",
    ),
    "parent-of-known": Protection(
        "… a fork only where it still has its parent",
        "eventstore/recorders/sqlite/reader.py",
        "known.redactions, known.parent,",
        "known.redactions, found[-1],",
        "tests/eventstore/test_forks.py -k another_process",
    ),
    "positions-number": Protection(
        "a count of positions is a number, not a text that a sum takes for one",
        "eventstore/recorders/sqlite/upkeep.py",
        " or not is_a_number:",
        ":",
        f"{_VERIFICATION} -k is_a_text",
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
        "if not create and status is not None and not has_content:",
        "if False:",
        "tests/eventstore/test_sqlite.py -k nothing_is_left",
    ),
    "checked": Protection(
        "a file that changed a moment ago is checked, whatever this process has checked in it",
        "eventstore/recorders/sqlite/checked.py",
        "abs(time.time_ns() - status.st_ctime_ns) < _AT_REST_NS",
        "False",
        "tests/eventstore/test_checked.py -k a_moment_ago",
    ),
    "exact": Protection(
        "a field that a user names $exact is not interpreted",
        "eventstore/codec.py",
        "if EXACT in fields or not is_json(fields) else",
        "if not is_json(fields) else",
        "tests/eventstore/test_codec.py -k named_exact",
    ),
    "exact-beside": Protection(
        "an exact form counts only beside what was made of it",
        "eventstore/codec.py",
        "if exact is None or with_exact(exact) != body:",
        "if exact is None:",
        "tests/eventstore/test_codec.py -k counts_only_beside",
    ),
    "exact-first-form": Protection(
        "… also where an earlier version wrote it",
        "eventstore/values/exact.py",
        "return exact if _encode({**_readable(exact), EXACT: value[EXACT]}) == body else None",
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
        "an encrypted body is of its place",
        "eventstore/stored/row_codec.py",
        'return b"%b\\0%b%b%b%b" % (what, columns, proof, _length(len(name)), name)',
        'return b"event\\0"',
        _ATTACKER,
    ),
    "columns": Protection(
        "… and of every other column",
        "eventstore/stored/row_codec.py",
        'return b"%b\\0%b%b%b%b" % (what, columns, proof, _length(len(name)), name)',
        'return b"event\\0%b" % columns[:8]',
        _ATTACKER,
    ),
    "plain-rows": Protection(
        "a plain row is refused in an encrypted conversation",
        "eventstore/stored/row_codec.py",
        "if key is not None and key.form != 1 and not self.mark.expects(row.id):",
        "if False:",
        f"{_ENCRYPTION} -k refused_by_every_read",
    ),
    "form-1": Protection(
        "a row of the earlier form is refused in a conversation that was rekeyed",
        "eventstore/stored/row_codec.py",
        "if key is not None and key.form != 1 and not self.mark.expects(row.id):",
        "if key is not None and not encoding & ENCRYPTED_1 and key.form != 1 and not self.mark.expects(row.id):",
        f"{_ENCRYPTION} -k form_1_do_not_come_back",
    ),
    "plain-records": Protection(
        "a plain revision is refused there",
        "eventstore/stored/row_codec.py",
        "if key is not None and key.form != 1 and not record.version <= self.mark.pending_until:",
        "if False:",
        f"{_ATTACKER} -k makes_up",
    ),
    "records-columns": Protection(
        "an encrypted revision is of its version, code and base",
        "eventstore/stored/row_codec.py",
        'return b"record\\0%b%b%b" % (columns, _length(len(name)), name)',
        'return b"record\\0"',
        f"{_ATTACKER} -k every_column_of_a_revision",
    ),
    "marks": Protection(
        "a mark is of how the conversation ends",
        "eventstore/stored/marks.py",
        "        key.decrypt(stored[_says.size :], _place(conversation, says))\n",
        "        pass\n",
        f"{_ATTACKER} -k makes_up",
    ),
    "proofs": Protection(
        "an idempotency key stands for what was written",
        "eventstore/stored/read_transaction.py",
        "if not codec.is_proved(name, each):",
        "if False:",
        f"{_ATTACKER} -k makes_up",
    ),
    "keys-counted": Protection(
        "verify counts idempotency keys",
        "eventstore/maintenance/verify.py",
        "if codec.is_strict and proved < codec.mark.keys:",
        "if False:",
        f"{_ATTACKER} -k makes_up",
    ),
    "met-before": Protection(
        "what a process met before counts only where it needs the key",
        "eventstore/stored/database.py",
        "return self.settings.keys is None or codec.is_strict",
        "return True",
        f"{_ENCRYPTION} -k go_on_believing",
    ),
    "encrypted-salt": Protection(
        "the salt is encrypted with the key",
        "eventstore/stored/database.py",
        'renewed = found._replace(salt=b"", key_id',
        "renewed = found._replace(key_id",
        f"{_ENCRYPTION} -k the_salt",
    ),
    "uncommitted-key": Protection(
        "a data key that was not committed encrypts nothing",
        "eventstore/stored/write_transaction.py",
        "self._known_codec = codec._replace(data_key=data_key, mark=mark)\n",
        'self._known_codec = vars(self._database).setdefault("kept", codec._replace(data_key=data_key, mark=mark))\n',
        f"{_ENCRYPTION} -k never_committed",
    ),
    "checksum-of-form": Protection(
        "a row gets the checksum of its new form",
        "eventstore/stored/row_codec.py",
        "return stored._replace(checksum=",
        "return stored if how == PLAIN else stored._replace(checksum=",
        f"{_REKEY} -k every_form_becomes and memory",
    ),
    "as-it-is": Protection(
        "a setting that is not given changes nothing",
        "eventstore/stored/row_codec.py",
        "if compression is not None and how != _COMPRESSIONS.index(compression):",
        'if how != _COMPRESSIONS.index(compression := compression or "none"):',
        f"{_REKEY} -k not_given and memory",
    ),
    "read-back": Protection(
        "what is rewritten is read back before it is committed",
        "eventstore/maintenance/rekey.py",
        "if came != wanted:",
        "if False:",
        f"{_REKEY} -k taken_back and memory",
    ),
    "rekey-chain": Protection(
        "only what its head is of is encrypted",
        "eventstore/maintenance/rekey.py",
        "if plain.encoding == DAMAGED or not chain.follows(plain):",
        "if plain.encoding == DAMAGED:",
        f"{_REKEY} -k not_what_its_head and memory",
    ),
    "rekey-ends": Protection(
        "a change ends when every row is changed",
        "eventstore/maintenance/rekey.py",
        "if codec.mark.pending_until and not self.damaged:",
        "if codec.mark.pending_until:",
        f"{_REKEY} -k not_what_its_head and memory",
    ),
    "decrypt": Protection(
        "nothing becomes plain text unless it is asked for",
        "eventstore/maintenance/rekey.py",
        "None if self._decrypt else codec.data_key)",
        "None if self._decrypt or not self.key else codec.data_key)",
        f"{_REKEY} -k every_form_becomes and memory",
    ),
    "bombs": Protection(
        "no body is decompressed beyond the limit of the store",
        "eventstore/stored/compression.py",
        "if size > bytes_max:",
        "if False:",
        f"{_ENCRYPTION} -k beyond_the_limit",
    ),
    "bombs-zlib": Protection(
        "… whatever its compression",
        "eventstore/stored/compression.py",
        "if len(body) > bytes_max:",
        "if False:",
        f"{_ENCRYPTION} -k beyond_the_limit",
    ),
    "one-by-one": Protection(
        "a page of bodies is not decompressed at once",
        "eventstore/stored/row_codec.py",
        "return _Decompressed(decrypted, limit) if",
        "return list(_Decompressed(decrypted, limit)) if",
        f"{_ENCRYPTION} -k one_by_one",
    ),
    "staged-rekey": Protection(
        "what a killed import left is encrypted too",
        "eventstore/maintenance/rekey.py",
        "        if staged is not None:\n",
        "        if False:\n",
        f"{_ENCRYPTION} -k killed_import",
    ),
    "quiet-keys": Protection(
        "an error does not show the key",
        "eventstore/stored/keys.py",
        'raise KeyUnavailable(f"{where} holds a text of',
        'raise KeyUnavailable(f"{text} {where} holds a text of',
        _ENCRYPTION,
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
        "and the audit database", "foldlog/cli/trust/erase.py", "update(store, audit, conversations)", "pass", _TRUST
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
        "a file that a command writes is its owner's, whatever lies there",
        "eventstore/maintenance/whole_file.py",
        'tempfile.mkstemp(prefix=f"{path.name[:_NAME_MAX]}.", suffix=".part", dir=path.parent)',
        'os.open(f"{path}.part", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), f"{path}.part"',
        f"{_PRIVATE} -k replaces_a_link",
    ),
    "synced": Protection(
        "… and is on disk before it takes its name",
        "eventstore/maintenance/whole_file.py",
        "            os.fsync(file.fileno())\n",
        "",
        f"{_PRIVATE} -k synced",
    ),
    "lock-link": Protection(
        "the lock file of a store is not opened through a link",
        "eventstore/recorders/sqlite/write_lock.py",
        "os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW",
        "os.O_CREAT | os.O_RDWR",
        f"{_PRIVATE} -k lock_file",
    ),
    "audit-link": Protection(
        "no audit database is made through a link",
        "foldlog/reports/audit_file.py",
        "os.link(part, target)",
        "os.replace(part, target.resolve())",
        f"{_PRIVATE} -k audit_database",
    ),
    "audit-whole": Protection(
        "an audit database has its name when its tables are complete",
        "foldlog/reports/audit_file.py",
        "part = new_beside(target)",
        "part = target",
        "tests/foldlog/test_audit_follow.py -k made_the_file",
    ),
    "key-file": Protection(
        "a key file that others can read is refused",
        "eventstore/stored/keys.py",
        "status.st_mode & (stat.S_IRGRP | stat.S_IROTH)",
        "False",
        f"{_ENCRYPTION} -k others_can_read",
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
    "far": Protection(
        "a far id brings no lost events without number",
        "eventstore/maintenance/salvage.py",
        "elif row.id - self._next > self._lost_max:",
        "elif row.id < 0:",
        f"{_SALVAGE} -k far_id",
    ),
    "far-end": Protection(
        "… nor does one at the end",
        "eventstore/maintenance/salvage.py",
        "if self._found.version - self._next > self._lost_max:",
        "if False:",
        f"{_SALVAGE} -k far_id",
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
        "eventstore/recorders/sqlite/damaged/carving.py",
        "next((name for name in self._candidates(key) if _is_sound(self._seeds[name], row)), None)",
        "next(iter(self._named.get(key, ())), None)",
        f"{_SALVAGE} -k checksums_say_whose",
    ),
    "put-back": Protection(
        "an event that stands elsewhere is put back",
        "eventstore/recorders/sqlite/damaged/carving.py",
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
        "eventstore/recorders/sqlite/damaged/pages.py",
        "if frame_salts != salts or sums != (one, two):",
        "if frame_salts != salts:",
        _SALVAGE,
    ),
    "terminal": Protection(
        "nothing steers a terminal",
        "foldlog/words/safe_text.py",
        "return (_STEERS_OR_BREAKS if one_line else _STEERS).sub(_escape, text)",
        "return text",
        _TRUST,
    ),
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], PROTECTIONS))
