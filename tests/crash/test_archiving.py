"""A process is killed at random moments while it archives, restores and vacuums: no event is lost, and
after a vacuum the folder has just the objects that the store names.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import foldlog
from tests.crash.archiving import NAMES
from tests.object_server import BUCKET, InMemory, ObjectServer

ROOT = Path(__file__).parent.parent.parent


_KILLS = 20


@pytest.fixture
def folder(tmp_path):
    objects = tmp_path / "objects"
    return f"file://{objects}", lambda: sorted(path.name for path in objects.glob("*"))


@pytest.fixture
def s3(monkeypatch):
    server = ObjectServer(InMemory())
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    yield (
        f"s3://{BUCKET}/{server.port}",
        lambda: sorted(key.rpartition("/")[2] for key in server.names()),
    )
    server.close()


@pytest.mark.long  # the short form: tests/conformance/test_archive.py, killed between transactions
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
@pytest.mark.parametrize("objects", ["folder", "s3"])
def test_random_kills_lose_nothing(database, objects, tmp_path, request):
    if database == "sqlite":
        url = f"sqlite:///{tmp_path}/store.db?mode=rwc"
    else:
        url = request.getfixturevalue("postgres_url")()
    to, names_of_objects = request.getfixturevalue(objects)
    with foldlog.open(url) as histories:
        for name in NAMES:
            for number in range(20):
                histories[name].append({"role": "user", "content": f"{name} {number}"})
        logs = {name: _log(histories, name) for name in NAMES}
    moments = random.Random(7)
    for _ in range(_KILLS):
        _kill_after(moments.uniform(0, 0.3), url, to)
        with foldlog.open(url) as histories:
            histories.maintenance.vacuum()
            assert names_of_objects() == _object_names(histories)
            for name in NAMES:
                events = _log(histories, name)
                assert events[: len(logs[name])] == logs[name]
                logs[name] = events
            assert not any(verdict.findings for verdict in histories.maintenance.verify())


def _kill_after(seconds, url, to):
    command = [sys.executable, "-m", "tests.crash.archiving", url, to]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
    assert line == "begun\n"


def _log(histories, name):
    return [*histories.store.log(name)]


def _object_names(histories):
    """Return the names of the objects of archived conversations."""
    rows = [*histories.store.iter_conversations()]

    def read_names(reader):
        keys = [reader.conversation(row.id).key for row in rows]
        return [
            operation.state.rpartition("/")[2]
            for key in keys
            for operation in reader.unfinished(key)
        ]

    names = histories.store.database.recorder.query(read_names)
    assert len(names) >= sum(row.archived > 0 for row in rows)
    return sorted(names)
