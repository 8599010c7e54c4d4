"""The protections against damage and leaks: see ``tests.protections``."""

from __future__ import annotations

from tests.protections import Always, Argument, Gone, Instead, Never, Part, Protection

_VERIFICATION = "tests/eventstore/test_verification.py"
_ENCRYPTION = "tests/eventstore/test_encryption.py"
_REKEY = "tests/conformance/test_rekey.py"
_ATTACKER = "tests/fuzz/test_attacker.py"
_ERASURE = "tests/eventstore/test_erasure.py"
_TRUST = "tests/foldlog/test_trust.py"
_PRIVATE = "tests/foldlog/test_private_files.py"
_DAMAGE = "tests/fuzz/test_damage.py"
PROTECTIONS = {
    "bytes-compared": Protection(
        "bytes beside an event are those that its body names",
        "eventstore:RowCodec._with_attachments",
        Never("missing"),
        "tests/conformance/test_bytes.py -k lost_or_changed",
    ),
    "bytes-marker": Protection(
        "a list of bytes that a user writes is a value like any other",
        "eventstore:without_list",
        Instead("startswith", "if BEGINS_WITH_LIST[1:] not in body:"),
        "tests/conformance/test_bytes.py -k marker_of_ours and plain-sqlite",
    ),
    "bytes-name": Protection(
        "an encrypted store does not tell whether it has known bytes",
        "eventstore:RowCodec._stored_attachment",
        Instead("name_of", "name = plain.name"),
        "tests/conformance/test_bytes.py -k nor_their_hash and sqlite",
    ),
    "checksums": Protection(
        "every read checks every row",
        "eventstore:unsound",
        Instead("enumerate", "return []"),
        _DAMAGE,
    ),
    "counts": Protection(
        "rows of a View count on",
        "eventstore:ReadTransaction._check_that_none_is_missing",
        Never("before expected"),
        "tests/projections/test_tail.py -k missing",
    ),
    "positions-number": Protection(
        "a count of positions is a number, not a text that a sum takes for one",
        "eventstore.recorders.sqlite:findings",
        Part("is_a_number"),
        f"{_VERIFICATION} -k is_a_text",
    ),
    "heads": Protection(
        "verify compares heads",
        "eventstore:Check._take",
        Never("link_of"),
        _VERIFICATION,
    ),
    "published": Protection(
        "… with those that were published",
        "eventstore:_of_rows",
        Instead("published items", "for version, head in ():"),
        _VERIFICATION,
    ),
    "cut": Protection(
        "… and their versions",
        "eventstore:_findings",
        Gone("of_all problem found"),
        _VERIFICATION,
    ),
    "impossible-keys": Protection(
        "a key stands for events that can be",
        "eventstore:_beside",
        Never("first count 0"),
        _VERIFICATION,
    ),
    "hidden": Protection(
        "a conversation that was seen cannot be hidden",
        "eventstore.recorders.sqlite:findings",
        Instead("execute hidden", "for (name,) in ():"),
        _VERIFICATION,
    ),
    "empty": Protection(
        "an empty file is no store to those who read",
        "eventstore:SQLiteRecorder._open",
        Never("has_content create False"),
        "tests/eventstore/test_sqlite.py -k nothing_is_left",
    ),
    "exact": Protection(
        "a field that a user names $exact is not interpreted",
        "eventstore:text_of",
        Instead("readable items name", 'readable = whole_pairs(fields, "replace")'),
        "tests/eventstore/test_codec.py -k named_exact",
    ),
    "exact-beside": Protection(
        "an exact form counts only beside what was made of it",
        "eventstore:exact_of",
        Never("written text"),
        "tests/eventstore/test_codec.py -k counts_only_beside",
    ),
    "own-fields": Protection(
        "an extra field does not take the place of one of the event's own",
        "eventstore:_slow_body",
        Never("__struct_encode_fields__"),
        "tests/eventstore/test_codec.py -k take_the_place",
    ),
    "places": Protection(
        "an encrypted body is of its place",
        "eventstore.log.seal:_place_of_row",
        Instead("what columns", 'return b"event\\0"'),
        _ATTACKER,
    ),
    "columns": Protection(
        "… and of every other column",
        "eventstore.log.seal:_place_of_row",
        Instead("what columns", 'return b"event\\0%b" % columns[:8]'),
        _ATTACKER,
    ),
    "plain-rows": Protection(
        "a plain row is refused in an encrypted conversation",
        "eventstore:RowCodec._decrypted",
        Never("expects"),
        f"{_ENCRYPTION} -k refused_by_every_read",
    ),
    "plain-records": Protection(
        "a plain revision is refused there",
        "eventstore:RowCodec._decrypted_record",
        Never("pending_until"),
        f"{_ATTACKER} -k makes_up",
    ),
    "records-columns": Protection(
        "an encrypted revision is of its version, code and base",
        "eventstore:_place_of_record",
        Instead("columns _named", 'return b"record\\0"'),
        f"{_ATTACKER} -k every_column_of_a_revision",
    ),
    "marks": Protection(
        "a mark is of how the conversation ends",
        "eventstore:read_mark",
        Gone("decrypt"),
        f"{_ATTACKER} -k makes_up",
    ),
    "proofs": Protection(
        "an idempotency key stands for what was written",
        "eventstore:ReadTransaction.check_proofs",
        Never("is_proved"),
        f"{_ATTACKER} -k makes_up",
    ),
    "keys-counted": Protection(
        "verify counts idempotency keys",
        "eventstore:_beside",
        Never("is_strict"),
        f"{_ATTACKER} -k makes_up",
    ),
    "met-before": Protection(
        "a program that has keys asks whether a conversation is encrypted before it believes a"
        " plain row",
        "eventstore:_decoded",
        Always("settings keys"),
        f"{_ENCRYPTION} -k go_on_believing",
    ),
    "encrypted-salt": Protection(
        "the salt is encrypted with the key",
        "eventstore:encrypted",
        Argument("salt"),
        f"{_ENCRYPTION} -k the_salt",
    ),
    "uncommitted-key": Protection(
        "a data key that was not committed encrypts nothing",
        "eventstore:WriteTransaction._codec_to_write",
        Instead(
            "_known_codec _replace",
            'self._known_codec = vars(self._database).setdefault("kept",'
            " codec._replace(data_key=data_key, mark=mark))",
        ),
        f"{_ENCRYPTION} -k never_committed",
    ),
    "checksum-of-form": Protection(
        "a row gets the checksum of its new form",
        "eventstore:RowCodec.encoded",
        Instead("with_checksums stored", "return stored"),
        f"{_REKEY} -k every_form_becomes and sqlite",
    ),
    "as-it-is": Protection(
        "a setting that is not given changes nothing",
        "eventstore:RowCodec.encoded_again",
        Instead("choice _COMPRESSIONS", 'choice = compression or "none"'),
        f"{_REKEY} -k not_given and sqlite",
    ),
    "read-back": Protection(
        "a new form that does not read the same is not written",
        "eventstore:_Change._replace",
        Never("back"),
        f"{_REKEY} -k taken_back and sqlite",
    ),
    "rekey-chain": Protection(
        "only what its head is of is encrypted",
        "eventstore:_Change._rows",
        Part("_follows"),
        f"{_REKEY} -k not_what_its_head and sqlite",
    ),
    "rekey-ends": Protection(
        "a change ends when every row is changed",
        "eventstore:_Change._rows",
        Instead("removed sound _end", "removed = bool(mark.pending_until) and self._end()"),
        f"{_REKEY} -k not_what_its_head and sqlite",
    ),
    "decrypt": Protection(
        "nothing becomes plain text unless it is asked for",
        "eventstore:_Change.__init__",
        Instead("_target", "self._target = RowCodec(codec.conversation, None)"),
        f"{_REKEY} -k every_form_becomes and sqlite",
    ),
    "bombs": Protection(
        "no body is decompressed beyond the limit",
        "eventstore:_from_zstd",
        Never("EVENT_BYTES_MAX"),
        f"{_ENCRYPTION} -k beyond_the_limit",
    ),
    "bombs-zlib": Protection(
        "… whatever its compression",
        "eventstore:decompressed",
        Never("EVENT_BYTES_MAX"),
        f"{_ENCRYPTION} -k beyond_the_limit",
    ),
    "staged-rekey": Protection(
        "what a killed import left is encrypted too",
        "eventstore:rekey",
        Never("operation IMPORT"),
        "tests/conformance/test_data_keys.py -k killed_import and sqlite",
    ),
    "quiet-keys": Protection(
        "an error does not show the key",
        "eventstore:_key",
        Instead(
            "KeyUnavailable",
            'raise KeyUnavailable(f"{text} {where} holds a text of {len(text.strip())} characters, '
            'not a key; {_HOW_TO_MAKE_ONE}")',
        ),
        _ENCRYPTION,
    ),
    "overwritten": Protection(
        "deleted cells are overwritten",
        "eventstore:StoreFile._prepare_to_write",
        Instead("secure_delete", 'connection.execute("PRAGMA secure_delete = OFF")'),
        f"{_ERASURE} -k before_any_vacuum",
    ),
    "staged": Protection(
        "imports that are going on are erased too",
        "eventstore.maintenance.erase:_delete_rows",
        Part("each conversation"),
        _ERASURE,
    ),
    "private": Protection(
        "a file that a command writes is its owner's, whatever lies there",
        "eventstore:made_beside",
        Instead(
            "_NAME_MAX",
            'return os.open(f"{path}.part", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600),'
            ' f"{path}.part"',
        ),
        f"{_PRIVATE} -k replaces_a_link",
    ),
    "synced": Protection(
        "… and is on disk before it takes its name",
        "foldlog:whole_file",
        Gone("fsync"),
        f"{_PRIVATE} -k synced",
    ),
    "lock-link": Protection(
        "the lock file of a store is not opened through a link",
        "eventstore:WriteLock.open",
        Instead("O_NOFOLLOW", "self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)"),
        f"{_PRIVATE} -k lock_file",
    ),
    "audit-link": Protection(
        "no audit database is made through a link",
        "foldlog:_make",
        Instead("link part", "os.replace(part, target.resolve())"),
        f"{_PRIVATE} -k audit_database",
    ),
    "audit-whole": Protection(
        "an audit database has its name when its tables are complete",
        "foldlog:_make",
        Instead("new_beside", "part = target"),
        "tests/foldlog/test_audit_follow.py -k made_the_file",
    ),
    "key-file": Protection(
        "a key file that others can read is refused",
        "eventstore:KeyRing.from_file",
        Instead("S_IRGRP", "if stat.S_ISREG(status.st_mode) and False:"),
        f"{_ENCRYPTION} -k others_can_read",
    ),
    "terminal": Protection(
        "nothing steers a terminal",
        "foldlog:printable",
        Instead("_STEERS_OR_BREAKS", "return text"),
        _TRUST,
    ),
    "followers": Protection(
        "what is being erased is not followed",
        "sqlite/queries.sql:live_rows",
        Gone("EXISTS"),
        "tests/conformance/test_recorders.py -k followed_by_nobody",
    ),
}
