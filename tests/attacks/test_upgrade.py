"""A store of each earlier schema is compared with the checkpoint that its own version made of it.

``checkpoints.json`` of the golden files has each checkpoint, and its list of leaves.
"""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import foldlog
from foldlog._app.cli.verify_findings import Checks
from foldlog.eventstore import KeyRing, open_store
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.signed_note import StoreCheckpoint, read_note
from tests.golden.make import ARCHIVE, GOLDEN, KEYS, move_archive, put_objects
from tests.said import said

CHECKPOINTS: dict[str, Any] = json.loads((GOLDEN / "checkpoints.json").read_text())
EARLIER = "the checkpoint of an earlier version does not cover"


@pytest.fixture(params=CHECKPOINTS)
def schema(request: pytest.FixtureRequest) -> str:
    number: str = request.param
    return number


@pytest.fixture
def path(schema: str, tmp_path: Path) -> Path:
    stem = GOLDEN / "stores" / f"schema-{schema}"
    path = tmp_path / "store.db"
    path.write_bytes(gzip.decompress(stem.with_suffix(".db.gz").read_bytes()))
    put_objects(json.loads(stem.with_suffix(".json").read_text())["objects"], tmp_path / "objects")
    with closing(sqlite3.connect(path)) as connection:
        move_archive(connection, ARCHIVE, f"file://{tmp_path / 'objects'}")
        for *columns, body in CHECKPOINTS[schema]["rows"]:
            connection.execute(
                "INSERT INTO records (conversation, projection, version, code, encoding, checksum,"
                " body) VALUES (0, ?, ?, ?, ?, ?, ?)",
                (*columns, base64.b64decode(body)),
            )
        connection.commit()
    return path


@pytest.fixture
def note(schema: str) -> StoreCheckpoint:
    return read_note(CHECKPOINTS[schema]["note"])


def checks_of(path: Path, note: StoreCheckpoint, keys: KeyRing | None = KEYS) -> Checks:
    checks = Checks()
    with open_store(path, keys=keys) as store:
        for _ in checks.count(verify_against(store, note), lambda **_: None):
            pass
    return checks


def test_upgrade_raises_no_alarm(path: Path, note: StoreCheckpoint, schema: str) -> None:
    checks = checks_of(path, note)
    assert checks.conversations > 15
    assert checks.findings == []
    assert all(EARLIER in text for _, text in checks.not_checked)
    # Only the leaves of schemas 6 and 7 cover when a conversation began, and no leaf of these
    # schemas covers how many records had become events.
    beginnings = (None, f"{EARLIER} when conversations began")
    assert (beginnings in checks.not_checked) == (int(schema) < 6)
    texts = [text for name, text in checks.not_checked if name == "used"]
    made = f"it was not proved, because {EARLIER} how many records of its source had become events"
    assert (made in texts) == (int(schema) > 3)


def test_work_after_an_upgrade_raises_no_alarm(
    path: Path, note: StoreCheckpoint, schema: str
) -> None:
    with foldlog.open(path, keys=KEYS) as histories:
        for name in ("plain none", "encrypted none", "plain zstd"):
            histories[name].append(said("more"))
            histories[name].redact(0, reason="asked", by="legal")
        histories.erase("exact", reason="asked")
        later = make_checkpoint(histories.store)
    checks = checks_of(path, note)
    assert checks.findings == []
    assert all(EARLIER in text for _, text in checks.not_checked)
    last = f"it was not proved, because {EARLIER} the time of its last event"
    assert (("exact", last) in checks.not_checked) == (int(schema) < 4)
    now = checks_of(path, later)
    assert (now.findings, now.not_checked) == ([], [])


def test_what_a_leaf_does_not_cover_without_the_key_is_named(
    path: Path, note: StoreCheckpoint, schema: str
) -> None:
    checks = checks_of(path, note, None)
    assert checks.findings == []
    order = f"it was not proved, because {EARLIER} the order, kinds and times of events"
    texts = [text for name, text in checks.not_checked if name == "encrypted none"]
    assert any(order in text for text in texts) == (int(schema) < 4)


def test_change_after_an_upgrade_is_named(path: Path, note: StoreCheckpoint) -> None:
    open_store(path).close()
    with closing(sqlite3.connect(path)) as connection:
        name = "plain none"
        [key] = connection.execute("SELECT key FROM conversations WHERE id = ?", (name,))
        last = "SELECT max(id) FROM events WHERE conversation = ?"
        connection.execute(
            f"DELETE FROM events WHERE conversation = ? AND id = ({last})", (*key, *key)
        )
        connection.commit()
    findings = checks_of(path, note).findings
    assert any(conversation == name and "cut off" in text for conversation, text in findings)
