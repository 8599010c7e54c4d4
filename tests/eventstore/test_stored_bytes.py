"""A second reader: stored bytes read by what ``docs/internals/STORED_BYTES.md`` says, with nothing
of ours.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zstandard
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, strategies as st
from pydantic import SecretStr

from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationRequest,
    Event,
    KeyRing,
    Message,
    Observation,
    Origin,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.log.row import crc32
from foldlog.projections import Views

PAGE = (Path(__file__).parents[2] / "docs" / "internals" / "STORED_BYTES.md").read_text("utf-8")
WRAPPING_KEY = bytes(range(32))
NAMES = ["c1", "ümlaut \udcff\0"]


# -- the reader, which knows the page and nothing else
# -----------------------------------------------------------------


class Row(NamedTuple):
    """What ``meta`` holds, and the body."""

    id: int
    kind: bytes
    schema: int
    shown: int
    structural: int
    recorded_at: int
    encoding: int
    shown_before: int
    structural_before: int
    proof: bytes
    body_checksum: int
    checksum: int
    columns: bytes
    body: bytes

    @property
    def head(self) -> bytes:
        return self.proof[:32]


def row_of(meta: bytes, body: bytes) -> Row:
    checksum, event_id, before, turns, at, schema, shown, structural, encoding, size = (
        struct.unpack_from(">IIIIqIBBBB", meta)
    )
    (own,) = struct.unpack("<I", meta[-4:])
    proof, kind = meta[32 : 32 + size], meta[32 + size : -4]
    return Row(
        event_id,
        kind,
        schema,
        shown,
        structural,
        at,
        encoding,
        before,
        turns,
        proof,
        checksum,
        own,
        meta[4:-4],
        body,
    )


def seed(salt: bytes, name: bytes) -> bytes:
    return hashlib.sha256(b"foldlog" + salt + name).digest()


def next_head(head: bytes, salt: bytes, row: Row, body: bytes, behind: bytes) -> bytes:
    """``behind`` is the salt of the event, or its commitment."""
    fields = f"{row.id} {row.schema} {row.shown} {row.structural} {row.recorded_at} {len(row.kind)} ".encode()
    commitment = hashlib.sha256(behind + body).digest() if len(behind) == 16 else behind
    return hashlib.sha256(
        head + salt + b"salted " + fields + row.kind + b"\n" + commitment
    ).digest()


def assert_checksums(name: bytes, row: Row) -> None:
    assert row.body_checksum == zlib.crc32(row.body)
    assert row.checksum == zlib.crc32(
        struct.pack(">I", row.body_checksum) + row.columns, zlib.crc32(name)
    )


def opened(row: Row, name: bytes, data_key: bytes | None) -> tuple[bytes, bytes]:
    """The body, and the salt of the event or its commitment."""
    body, encoding, behind = row.body, row.encoding, row.proof[32:]
    if encoding & 8:
        assert data_key is not None
        what = {32: b"event", 64: b"redacted event"}[len(row.proof)]
        place = what + b"\0" + struct.pack(">I", len(row.columns)) + row.columns + name
        body = AESGCM(data_key).decrypt(body[:12], body[12:], place)
        if not behind:
            behind, body = body[:16], body[16:]
        encoding -= 8
    encoding &= ~16
    read = {0: bytes, 1: zlib.decompress, 2: zstandard.decompress}[encoding]
    return read(body), behind


def said(body: bytes) -> Any:
    read = json.loads(body)
    return json.loads(base64.b64decode(read["$exact"])) if body.startswith(b'{"$exact":') else read


def said_with_bytes(path: Path, name: bytes, row: Row, body: bytes, data_key: bytes | None) -> Any:
    """What a body says whose bytes stand beside it."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(
            "SELECT a.name, a.encoding, a.body FROM attached d JOIN attachments a USING"
            " (conversation, name, encoding) WHERE d.event = ? AND d.conversation = (SELECT key"
            " FROM conversations WHERE id = CAST(? AS TEXT))",
            (row.id, name),
        ).fetchall()
    plain = {}
    for named, encoding, stored in found:
        if encoding & 8:
            assert data_key is not None
            place = b"attachment\0" + struct.pack(">I", encoding) + named + name
            stored = AESGCM(data_key).decrypt(stored[:12], stored[12:], place)
        value = (
            zlib.decompress(stored)
            if encoding & 1
            else zstandard.decompress(stored)
            if encoding & 2
            else stored
        )
        digest = hashlib.sha256(value).digest()
        keyed = b"" if data_key is None else data_key
        assert named == (
            digest
            if not keyed
            else hashlib.blake2b(
                digest, key=keyed, digest_size=32, person=b"foldlog bytes"
            ).digest()
        )
        plain[digest.hex()] = value
    assert body.startswith(b'{"$bytes":')
    read = json.loads(body)
    for listed in read.pop("$bytes"):
        assert len(plain[listed["sha256"]]) == listed["size"]
        *way, last = listed["at"]
        container = read
        for step in way:
            container = container[step]
        assert container[last] is None
        container[last] = plain[listed["sha256"]]
    return read


@pytest.mark.parametrize("compression", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("sealed", [False, True])
def test_bytes_are_read_by_the_page(tmp_path, compression, sealed):
    path = tmp_path / "store.db"
    with open_store(
        f"sqlite:///{path}",
        compression=compression,
        keys=KeyRing([SecretStr(WRAPPING_KEY.hex())]) if sealed else None,
    ) as store:
        part = {"type": "raw", "data": b"zeros" * 100, "$bytes": "a user's"}
        content = (part, {"type": "raw", "data": b"\xff"}, part)
        store.append("c1", Message(source="user", content=content), expected_version=0)
    ((name, salt, (row,), data_key),) = conversations(path)
    body, behind = opened(row, name, data_key)
    assert row.encoding == 16 + (8 if sealed else 0) + (row.encoding & 3)
    assert next_head(seed(salt, name), salt, row, body, behind) == row.head[:32]
    assert said_with_bytes(path, name, row, body, data_key)["content"] == list(content)


def unwrapped(sealed: bytes, name: bytes) -> bytes:
    assert sealed[0] == 1
    return AESGCM(WRAPPING_KEY).decrypt(sealed[1:13], sealed[13:], b"data key\0" + name)


def conversations(path: Path) -> Iterator[tuple[bytes, bytes, list[Row], bytes | None]]:
    """Name, salt, rows and data key of each conversation that can be seen and was not erased."""
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        found = connection.execute(
            "SELECT key, id, salt, key_id, sealed_key FROM conversations WHERE visible AND"
            " erased_at IS NULL"
        ).fetchall()
        for key, name, salt, key_id, sealed in found:
            data_key = None
            if sealed is not None:
                assert (
                    key_id.decode()
                    == hashlib.sha256(b"foldlog key" + WRAPPING_KEY).hexdigest()[:16]
                )
                secret = unwrapped(sealed, name)
                data_key, salt = secret[:32], secret[32:]
            asked = (
                "SELECT id, kind, shown, structural, meta, body FROM events WHERE conversation = ?"
                " ORDER BY id"
            )
            rows = []
            for *columns, meta, body in connection.execute(asked, (key,)):
                rows.append(row_of(meta, body))
                assert columns == [rows[-1].id, rows[-1].kind, rows[-1].shown, rows[-1].structural]
            yield name, salt, rows, data_key


def assert_reads(path: Path) -> dict[bytes, list[Any]]:
    """Every checksum and head is what the page says; returns what the bodies say."""
    events: dict[bytes, list[Any]] = {}
    for name, salt, rows, data_key in conversations(path):
        head, shown, structural = seed(salt, name), 0, 0
        for place, row in enumerate(rows):
            body, behind = opened(row, name, data_key)
            head = next_head(head, salt, row, body, behind)
            assert (row.id, row.head) == (place, head)
            assert_checksums(name, row)
            assert (row.shown_before, row.structural_before) == (shown, structural)
            shown, structural = shown + row.shown, structural + row.structural
            events.setdefault(name, []).append(said(body))
    return events


# -- what it is given
# --------------------------------------------------------------------------------------------------


def history() -> list[Event]:
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
    ]


def fill(path: Path, *, prefix: str = "", **how: Any) -> None:
    with open_store(f"sqlite:///{path}", **how) as store:
        store.register(Views(store))
        for name in NAMES:
            store.append(prefix + name, history(), expected_version=0, idempotency_key="turn-1")
        later = UnknownEvent(
            stored_kind="later é", stored_schema=3, body=b'{"kind":"later"}', shown=True
        )
        store.ingest(f"{prefix}imported", [later, *history() * 12])


@pytest.mark.parametrize("compression", ["none", "zlib", "zstd"])
@pytest.mark.parametrize("sealed", [False, True])
def test_a_store_is_read_by_the_page(tmp_path, compression, sealed):
    keys = KeyRing([SecretStr(WRAPPING_KEY.hex())]) if sealed else None
    fill(tmp_path / "store.db", compression=compression, keys=keys)
    events = assert_reads(tmp_path / "store.db")
    assert set(events) == {b"imported", b"c1", "ümlaut \udcff\0".encode("utf-8", "surrogatepass")}
    first, action, *_, condensation = events[b"c1"]
    assert first == {
        "kind": "message",
        "content": "Why does the test fail? \udcff",
        "source": "user",
    }
    assert action["arguments"] == {"command": "pytest -x", "n": float("inf")}
    assert condensation["forgotten_event_ids"] == [1, 2]
    assert len(events[b"imported"]) == 61


def proved(data_key: bytes, tag: bytes, place: bytes) -> bool:
    """Whether a nonce and a tag over nothing are those of this associated data."""
    return AESGCM(data_key).decrypt(tag[:12], tag[12:], place) == b""


def test_marks_proofs_and_encrypted_records_are_read_by_the_page(tmp_path):
    path = tmp_path / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        store.append("c1", history()[:2], expected_version=0, idempotency_key="turn-0")
    fill(path, keys=KeyRing([SecretStr(WRAPPING_KEY.hex())]), prefix="other ")
    with open_store(f"sqlite:///{path}", keys=KeyRing([SecretStr(WRAPPING_KEY.hex())])) as store:
        store.register(Views(store))
        store.append("c1", history()[3:], expected_version=2, idempotency_key="turn-1")
    read = 0
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        for name, _, rows, data_key in conversations(path):
            assert data_key is not None
            key, created_at, mark = connection.execute(
                "SELECT key, created_at, mark FROM conversations WHERE id = CAST(? AS TEXT)",
                (name,),
            ).fetchone()
            keys, first, until = struct.unpack(">3Q", mark[1:25])
            last = rows[-1]
            shown, structural = (
                last.shown_before + last.shown,
                last.structural_before + last.structural,
            )
            ends = struct.pack(">5q", created_at, last.id + 1, last.recorded_at, shown, structural)
            assert proved(
                data_key, mark[25:], b"mark\0" + mark[:25] + b"\1" + ends + last.head[:32] + name
            )
            assert mark[0] == 1
            assert (keys, first, until) == {b"c1": (1, 0, 2), b"other imported": (0, 0, 0)}.get(
                name, (1, 0, 0)
            )
            assert [row.id for row in rows if row.encoding < 8] == list(range(until))
            for text, start, count, proof in connection.execute(
                "SELECT key, first_id, events, proof FROM idempotency_keys WHERE conversation = ?",
                (key,),
            ).fetchall():
                place = b"key\0" + struct.pack(">2qI", start, count, len(text)) + text + name
                assert proof is None if start < until else proved(data_key, proof, place)
            for projection, version, code, encoding, body in connection.execute(
                "SELECT projection, version, code, encoding, body FROM records WHERE"
                " conversation = ?",
                (key,),
            ).fetchall():
                columns = struct.pack(">3q", version, code, encoding)
                place = (
                    b"record\0" + columns + struct.pack(">I", len(projection)) + projection + name
                )
                assert json.loads(AESGCM(data_key).decrypt(body[:12], body[12:], place))
                read += 1
    assert read > 24


def test_the_example_on_the_page_can_be_computed_again():
    example = PAGE[PAGE.index("## An example") :]
    salt = bytes.fromhex(re.findall(r"salt `([0-9a-f]{32})`", example)[0])
    head = seed(salt, b"c1")
    assert head.hex() in example
    bodies = re.findall(r"```json\n(.*?)```", example, re.DOTALL)[0].encode().splitlines()
    rows = re.findall(r"^\| (\d+) \| (\w+) \| (\d) \| (\d) \| `(\w+)` \|$", example, re.M)
    assert len(rows) == len(bodies) == 3
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


def test_the_records_beside_the_events_have_the_checksums_of_the_page(tmp_path):
    fill(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        records = connection.execute(
            "SELECT c.id, r.projection, r.version, r.code, r.encoding, r.body, r.checksum FROM"
            " records r JOIN conversations c ON c.key = r.conversation WHERE c.id = 'c1'"
        ).fetchall()
    assert len(records) == 2
    for name, projection, version, code, encoding, body, written in records:
        fields = f"{projection} {version} {code} {encoding} ".encode()
        assert written == zlib.crc32(body, zlib.crc32(fields, zlib.crc32(name.encode())))


def test_every_kind_and_field_is_on_the_page():
    from foldlog.eventstore.codec import KINDS, UPCASTS

    table = {
        row[0]: (int(row[1]), row[2])
        for row in re.findall(r"^\| `(\w+)` \| (\d) \| (.*?) \| [^|]*\|$", PAGE, re.MULTILINE)
    }
    assert {kind: len(UPCASTS.get(kind, ())) + 1 for kind in KINDS} == {
        kind: row[0] for kind, row in table.items()
    }
    common = {
        "kind",
        "id",
        "timestamp",
        "cause",
        "origin",
        "meta",
        "stays_with_next",
        "source",
        "shown",
        "extra",
        "redacted",
    }
    for kind, known in KINDS.items():
        fields = set(known.__struct_encode_fields__) - common
        assert {field for field in fields if f"`{field}`" not in table[kind][1]} == set()


@given(st.binary(max_size=3_000), st.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_zlib(data, start):
    assert crc32(data, start) == zlib.crc32(data, start)


def test_a_store_is_read_without_the_package(tmp_path):
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        store.append("c1", Message(source="user", content="hello"), expected_version=0)
    program = (
        "import sys; sys.modules['isal'] = sys.modules['isal.isal_zlib'] = None\nimport zlib\nfrom"
        " foldlog.eventstore import open_store\nfrom foldlog.eventstore.log.row import"
        " crc32\nassert crc32 is zlib.crc32\nwith open_store(sys.argv[1]) as store:"
        " print([event.content for event in store.events('c1')])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "['hello']"
