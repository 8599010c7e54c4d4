"""The stores of the attacks, in SQLite and in PostgreSQL, and the keys of their owner."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.attacks.arenas import Arena, Honest, PostgresArena, SQLiteArena
from tests.attacks.made_store import KEYS, make
from tests.attacks.operators import PostgresOperator


@pytest.fixture(scope="module")
def keys_of_the_owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    openssl = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "key.pem"]
    subprocess.run(openssl, check=True, capture_output=True)
    public = [
        "openssl",
        "pkey",
        "-in",
        folder / "key.pem",
        "-pubout",
        "-out",
        folder / "public.pem",
    ]
    subprocess.run(public, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def arena(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    keys_of_the_owner: Path,
) -> Iterator[Arena]:
    folder = tmp_path_factory.mktemp("arena")
    key_file = folder / "keys.txt"
    key_file.write_text("55" * 32)
    key_file.chmod(0o600)
    pem = (keys_of_the_owner / "key.pem").read_bytes()
    if request.param == "sqlite":
        url = f"sqlite:///{folder / 'store.db'}"
        note = make(url, folder, pem)
        shutil.copy(folder / "store.db", folder / "made.db")
        yield SQLiteArena(note, folder, url)
        return
    stores = request.getfixturevalue("postgres_stores")
    schema = stores.take()
    url = request.getfixturevalue("postgres_front").url(schema=schema, patience_s="60")
    note = make(url, folder, pem)
    operator = PostgresOperator(url, schema)
    operator.save()
    yield PostgresArena(note, folder, url, schema)
    operator.execute(f"DROP SCHEMA {schema} CASCADE")
    operator.execute(f"DROP SCHEMA {schema}_saved CASCADE")
    operator.close()


@pytest.fixture(scope="module")
def honest(arena: Arena) -> Honest:
    arena.restore()
    without_key = arena.judge()
    operator = arena.operator()
    keys = [row["key"] for row in operator.rows("conversations")]
    bodies = {row.body.decode(errors="replace") for key in keys for row in operator.events(key)}
    operator.close()
    return Honest(arena.judge(keys=KEYS), arena.shown(), without_key, bodies)
