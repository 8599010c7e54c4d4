"""A second reader of stored bytes, which is written after ``docs/internals/STORED_BYTES.md`` and
uses no code of foldlog.
"""

import base64
import hashlib
import json
import re
import sqlite3
import struct
import subprocess
import sys
import zlib
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationRequest,
    KeyRing,
    Message,
    Observation,
    Origin,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.codec import KINDS, UPCASTS
from foldlog.projections import Views
from tests.said import say

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "STORED_BYTES.md").read_text("utf-8")
WRAPPING_KEY = bytes(range(32))
NAMES = ["c1", "ümlaut \udcff\0"]


# -- the reader, which knows the page and nothing else
# -----------------------------------------------------------------


class Row(NamedTuple):
    """The fields of ``meta``, and the body."""

    body_checksum: int
    id: int
    shown_before: int
    structural_before: int
    recorded_at: int
    schema: int
    shown: int
    structural: int
    encoding: int
    proof: bytes
    kind: bytes
    checksum: int
    columns: bytes
    body: bytes

    @property
    def head(self):
        return self.proof[:32]


def row_of(meta, body):
    *fields, size = struct.unpack_from(">IIIIqIBBBB", meta)
    (checksum,) = struct.unpack("<I", meta[-4:])
    proof = meta[32 : 32 + size]
    kind = meta[32 + size : -4]
    return Row(*fields, proof, kind, checksum, meta[4:-4], body)


def seed(salt, name):
    return hashlib.sha256(b"foldlog" + salt + name).digest()


def next_head(head, salt, row, body, behind):
    """Return the head after an event. ``behind`` is the salt of the event, or its commitment."""
    fields = f"{row.id} {row.schema} {row.shown} {row.structural} {row.recorded_at} {len(row.kind)} ".encode()
    commitment = hashlib.sha256(behind + body).digest() if len(behind) == 16 else behind
    return hashlib.sha256(
        head + salt + b"salted " + fields + row.kind + b"\n" + commitment
    ).digest()


def assert_checksums(name, row):
    assert row.body_checksum == zlib.crc32(row.body)
    assert row.checksum == zlib.crc32(
        struct.pack(">I", row.body_checksum) + row.columns, zlib.crc32(name)
    )


def opened(row, name, data_key):
    """Return the body, and the salt of the event or its commitment."""
    body = row.body
    encoding = row.encoding
    behind = row.proof[32:]
    if encoding & 8:
        what = {32: b"event", 64: b"redacted event"}[len(row.proof)]
        place = what + b"\0" + struct.pack(">I", len(row.columns)) + row.columns + name
        body = AESGCM(data_key).decrypt(body[:12], body[12:], place)
        if not behind:
            behind = body[:16]
            body = body[16:]
        encoding -= 8
    return decompress(body, encoding & ~16), behind


def decompress(body, compression):
    read = {0: bytes, 1: zlib.decompress, 2: zstandard.decompress}[compression]
    return read(body)


class Conversation(NamedTuple):
    """A conversation that can be seen and was not erased. ``data_key`` is None if it is not
    encrypted.
    """

    key: int
    name: bytes
    created_at: int
    mark: bytes | None
    data_key: bytes | None
    salt: bytes
    rows: list[Row]


def ask(path, statement, *parameters):
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        return connection.execute(statement, parameters).fetchall()


def conversations(path):
    """Yield the conversations in a store's file, with the rows of their events."""
    for key, name, created_at, mark, salt, key_id, sealed in ask(
        path,
        "SELECT key, id, created_at, mark, salt, key_id, sealed_key FROM conversations"
        " WHERE visible AND erased_at IS NULL",
    ):
        data_key = None
        if sealed is not None:
            wrapping_id = hashlib.sha256(b"foldlog key" + WRAPPING_KEY).hexdigest()[:16]
            assert (key_id.decode(), sealed[0]) == (wrapping_id, 1)
            secret = AESGCM(WRAPPING_KEY).decrypt(sealed[1:13], sealed[13:], b"data key\0" + name)
            data_key = secret[:32]
            salt = secret[32:]
        rows = []
        for *columns, meta, body in ask(
            path,
            "SELECT id, kind, shown, structural, meta, body FROM events WHERE conversation = ?"
            " ORDER BY id",
            key,
        ):
            row = row_of(meta, body)
            assert columns == [row.id, row.kind, row.shown, row.structural]
            rows.append(row)
        yield Conversation(key, name, created_at, mark, data_key, salt, rows)


def attached(path, conversation):
    """Return the bytes that are stored beside the events, by their hashes."""
    plain = {}
    for named, encoding, stored in ask(
        path,
        "SELECT name, encoding, body FROM attachments WHERE conversation = ?",
        conversation.key,
    ):
        if encoding & 8:
            place = b"attachment\0" + struct.pack(">I", encoding) + named + conversation.name
            stored = AESGCM(conversation.data_key).decrypt(stored[:12], stored[12:], place)
        value = decompress(stored, encoding & 3)
        digest = name = hashlib.sha256(value).digest()
        if conversation.data_key is not None:
            keyed = {"key": conversation.data_key, "digest_size": 32, "person": b"foldlog bytes"}
            name = hashlib.blake2b(digest, **keyed).digest()
        assert named == name
        plain[digest.hex()] = value
    return plain


def decode_body(body, plain):
    """Return the event in a body, with the bytes that are stored beside it."""
    read = json.loads(body)
    if body.startswith(b'{"$exact":'):
        return json.loads(base64.b64decode(read["$exact"]))
    if body.startswith(b'{"$bytes":'):
        for listed in read.pop("$bytes"):
            assert len(plain[listed["sha256"]]) == listed["size"]
            *way, last = listed["at"]
            container = read
            for step in way:
                container = container[step]
            assert container[last] is None
            container[last] = plain[listed["sha256"]]
    return read


def assert_reads(path):
    """Check that every checksum and head is what the page says. Return the events in the bodies, by
    conversation.
    """
    events = {}
    for conversation in conversations(path):
        plain = attached(path, conversation)
        head = seed(conversation.salt, conversation.name)
        shown = 0
        structural = 0
        for place, row in enumerate(conversation.rows):
            body, behind = opened(row, conversation.name, conversation.data_key)
            head = next_head(head, conversation.salt, row, body, behind)
            assert (row.id, row.head) == (place, head)
            assert_checksums(conversation.name, row)
            assert (row.shown_before, row.structural_before) == (shown, structural)
            shown += row.shown
            structural += row.structural
            assert bool(row.encoding & 16) is body.startswith(b'{"$bytes":')
            events.setdefault(conversation.name, []).append(decode_body(body, plain))
    return events


# -- the stores that it reads
# --------------------------------------------------------------------------------------------------


PICTURE = {"type": "raw", "data": b"zeros" * 100, "$bytes": "a user's"}
KEYS = KeyRing([SecretStr(WRAPPING_KEY.hex())])


def history():
    """Return events of different kinds, with odd texts, attachments and long content."""
    return [
        Message(source="user", content="Why does the test fail? \udcff"),
        Action(
            tool="terminal",
            arguments={"command": "pytest -x", "n": 1e400},
            origin=Origin(format="f"),
            call_id="call-1",
        ),
        Observation(tool="terminal", content="1 failed " * 300, call_id="call-1", cause=1),
        CondensationRequest(reason="tokens"),
        CondensationAction(forgotten_event_ids=[1, 2], summary="It fails.", summary_offset=1),
        Message(source="user", content=(PICTURE, {"type": "raw", "data": b"\xff"}, PICTURE)),
    ]


def fill(path, *, prefix="", **how):
    """Make a store whose events have each way of being stored."""
    with open_store(path, **how) as store:
        store.register(Views(store))
        for name in NAMES:
            store.append(prefix + name, history(), expected_version=0, idempotency_key="turn-1")
        later = UnknownEvent(
            stored_kind="later é", stored_schema=3, body=b'{"kind":"later"}', shown=True
        )
        store.ingest(f"{prefix}imported", [later, *history() * 12])


@pytest.mark.parametrize("compression", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("keys", [None, KEYS], ids=["plain", "encrypted"])
def test_page_reads_a_store(tmp_path, compression, keys):
    fill(tmp_path / "store.db", compression=compression, keys=keys)
    events = assert_reads(tmp_path / "store.db")
    assert set(events) == {b"imported", b"c1", "ümlaut \udcff\0".encode("utf-8", "surrogatepass")}
    first, action, _, _, condensation, picture = events[b"c1"]
    text = "Why does the test fail? \udcff"
    assert first == {"kind": "message", "content": text, "source": "user"}
    assert action["arguments"] == {"command": "pytest -x", "n": float("inf")}
    assert condensation["forgotten_event_ids"] == [1, 2]
    assert picture["content"] == [PICTURE, {"type": "raw", "data": b"\xff"}, PICTURE]
    assert len(events[b"imported"]) == 73


def proved(data_key, tag, place):
    """Return whether a nonce and a tag over no bytes fit this associated data."""
    return AESGCM(data_key).decrypt(tag[:12], tag[12:], place) == b""


def assert_mark(conversation, expected):
    """Check the mark of an encrypted conversation. ``expected`` contains the number of idempotency
    keys without a proof, and the first plain event and the one after the last.
    """
    mark = conversation.mark
    last = conversation.rows[-1]
    assert mark[0] == 1
    assert struct.unpack(">3Q", mark[1:25]) == expected
    shown = last.shown_before + last.shown
    structural = last.structural_before + last.structural
    ends = struct.pack(
        ">5q", conversation.created_at, last.id + 1, last.recorded_at, shown, structural
    )
    place = b"mark\0" + mark[:25] + b"\1" + ends + last.head[:32] + conversation.name
    assert proved(conversation.data_key, mark[25:], place)


def assert_key_proofs(path, conversation, plain_until):
    """Check the proofs of idempotency keys. A key of plain events has none."""
    for text, start, count, proof in ask(
        path,
        "SELECT key, first_id, events, proof FROM idempotency_keys WHERE conversation = ?",
        conversation.key,
    ):
        if start < plain_until:
            assert proof is None
        else:
            numbers = struct.pack(">2qI", start, count, len(text))
            place = b"key\0" + numbers + text + conversation.name
            assert proved(conversation.data_key, proof, place)


def read_records(path, conversation):
    """Return the records of an encrypted conversation."""
    records = []
    for projection, version, code, encoding, body in ask(
        path,
        "SELECT projection, version, code, encoding, body FROM records WHERE conversation = ?",
        conversation.key,
    ):
        columns = struct.pack(">3qI", version, code, encoding, len(projection))
        place = b"record\0" + columns + projection + conversation.name
        opened_body = AESGCM(conversation.data_key).decrypt(body[:12], body[12:], place)
        records.append(json.loads(opened_body))
    return records


def test_page_reads_marks_proofs_and_records(tmp_path):
    path = tmp_path / "store.db"
    with open_store(path) as store:
        store.append("c1", history()[:2], expected_version=0, idempotency_key="turn-0")
    fill(path, keys=KEYS, prefix="other ")
    with open_store(path, keys=KEYS) as store:
        store.register(Views(store))
        store.append("c1", history()[3:5], expected_version=2, idempotency_key="turn-1")
    marks = {b"c1": (1, 0, 2), b"other imported": (0, 0, 0)}
    records = []
    for conversation in conversations(path):
        mark = marks.get(conversation.name, (1, 0, 0))
        plain_until = mark[2]
        assert_mark(conversation, mark)
        plain = [row.id for row in conversation.rows if row.encoding & 8 == 0]
        assert plain == [*range(plain_until)]
        assert_key_proofs(path, conversation, plain_until)
        records += read_records(path, conversation)
    assert all(records)
    assert len(records) > 24


def test_the_example_on_the_page_is_right():
    example = PAGE[PAGE.index("## An example") :]
    salt = bytes.fromhex(re.findall(r"salt `([0-9a-f]{32})`", example)[0])
    head = seed(salt, b"c1")
    assert head.hex() in example
    bodies = re.findall(r"```json\n(.*?)```", example, re.DOTALL)[0].encode().splitlines()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d) \| (\d) \| `(\w+)` \|$", example, re.M)
    assert len(rows) == len(bodies) == 2
    for body, (event_id, kind, shown, structural, meta) in zip(bodies, rows, strict=True):
        row = row_of(bytes.fromhex(meta), body)
        assert (row.id, row.kind, row.shown, row.structural) == (
            int(event_id),
            kind.encode(),
            int(shown),
            int(structural),
        )
        head = next_head(head, salt, row, body, row.proof[32:])
        assert head == row.head
        assert_checksums(b"c1", row)


def test_record_checksum_covers_its_columns(tmp_path):
    fill(tmp_path / "store.db")
    records = ask(
        tmp_path / "store.db",
        "SELECT c.id, r.projection, r.version, r.code, r.encoding, r.body, r.checksum FROM records r"
        " JOIN conversations c ON c.key = r.conversation WHERE c.id = 'c1'",
    )
    assert len(records) == 2
    for name, projection, version, code, encoding, body, written in records:
        fields = projection + f" {version} {code} {encoding} ".encode()
        assert written == zlib.crc32(body, zlib.crc32(fields, zlib.crc32(name)))


def test_every_kind_and_field_is_documented():
    rows = re.findall(r"^\| `(\w+)` \| (\d) \| (.*?) \| [^|]*\|$", PAGE, re.MULTILINE)
    schemas = {kind: str(len(UPCASTS.get(kind, ())) + 1) for kind in KINDS}
    assert {kind: schema for kind, schema, _ in rows} == schemas
    table = {kind: fields for kind, _, fields in rows}
    fields_of = {
        kind: set(event_class.__struct_encode_fields__) for kind, event_class in KINDS.items()
    }
    common = set.intersection(*fields_of.values())
    for kind, fields in fields_of.items():
        own = fields - common
        assert {field for field in own if f"`{field}`" not in table[kind]} == set()


def test_a_store_is_read_without_the_faster_zlib(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        say(store, "c1", "hello")
    program = (
        "import sys; sys.modules['isal'] = sys.modules['isal.isal_zlib'] = None\nimport zlib\nfrom"
        " foldlog.eventstore import open_store\nfrom foldlog.eventstore.log.row import"
        " crc32\nassert crc32 is zlib.crc32\nwith open_store(sys.argv[1]) as store:"
        " print([event.content for event in store.events('c1')])"
    )
    process = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, check=True
    )
    assert process.stdout.strip() == "['hello']"
