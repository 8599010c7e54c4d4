"""Archived conversations in an object store with S3's protocol that is slow, fails, or has other
objects than it should. No event is lost, and the error says what to do.

Without more, the server is our own. With ``scripts/test --s3``, it is moto's.
"""

import os
import shutil
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

import foldlog
from foldlog.eventstore import ConversationErased, StoreRefused, StoreUnavailable
from foldlog.eventstore.maintenance import archive_objects
from tests.object_server import BUCKET, Fault, InMemory, ObjectServer, moto_server

MOTO = os.environ.get("FOLDLOG_TEST_MOTO")
"""The path of the program ``moto_server``."""
ALL = ("GET", "HEAD", "PUT", "POST")


def refusal(fault, problem):
    """Expect the error that a fault causes, with its remedy."""
    if fault in (Fault.REFUSED, Fault.READ_ONLY):
        error = StoreRefused
        remedy = "give these credentials the right to do so"
    else:
        error = StoreUnavailable
        remedy = "try again when the object store answers"
    return pytest.raises(error, match=f"{problem}.*{remedy}")


@pytest.fixture(scope="module")
def backend(tmp_path_factory):
    if not MOTO:
        yield InMemory()
        return
    with moto_server(Path(MOTO), tmp_path_factory.mktemp("moto") / "log") as backend:
        yield backend


@pytest.fixture
def server(backend, monkeypatch):
    server = ObjectServer(backend)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    short = timedelta(milliseconds=1)
    backoff = {"init_backoff": short, "max_backoff": short, "base": 2}
    monkeypatch.setattr(archive_objects, "_RETRY", {"max_retries": 3, "backoff": backoff})
    yield server
    server.close()


@pytest.fixture
def prefix():
    return uuid.uuid4().hex


@pytest.fixture
def to(prefix):
    return f"s3://{BUCKET}/{prefix}"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "foldlog.db"


@pytest.fixture
def histories(path):
    with foldlog.open(path) as histories:
        fill(histories, "c")
        yield histories


def fill(histories, name, events=20):
    text = "what somebody wrote " * 5
    messages = [{"role": "user", "content": f"{name} {text}{n}"} for n in range(events)]
    histories[name].append(messages)


def archive(histories, to):
    return histories.maintenance.archive(timedelta(), to)


def content(histories, name="c"):
    return [*histories.store.log(name)]


def keys_in(server, prefix):
    return [key for key in server.names() if key.startswith(f"{prefix}/")]


def assert_named(histories, server, prefix):
    """Assert that the bucket has the objects that the store names, and no other ones."""

    def read(reader):
        rows = [*reader.conversations("", 100)]
        return [operation for row in rows for operation in reader.unfinished(row.key)]

    operations = histories.store.database.recorder.query(read)
    names = sorted(operation.state.rpartition(f"{BUCKET}/")[2] for operation in operations)
    assert keys_in(server, prefix) == names


def assert_nothing_is_lost(histories, server, prefix, before):
    """Assert that after a failure of the server, the conversation has all its events, and can be
    archived and restored.
    """
    server.heal()
    histories.maintenance.vacuum()
    assert content(histories) == before
    assert_named(histories, server, prefix)
    [outcome] = archive(histories, f"s3://{BUCKET}/{prefix}")
    assert (outcome.stays, outcome.events) == (None, len(before) - 1)
    assert content(histories) == before
    histories.maintenance.vacuum()
    assert_named(histories, server, prefix)
    assert not any(verdict.findings for verdict in histories.maintenance.verify())


# -- a request that fails once, and works when it is repeated


@pytest.mark.parametrize("method", ["HEAD", "PUT", "GET"])
@pytest.mark.parametrize(
    "fault", [Fault.UNAVAILABLE, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.HALF_AN_ANSWER]
)
def test_single_failure_is_not_noticed(server, histories, prefix, to, fault, method):
    before = content(histories)
    server.fail(fault, method, times=1)
    [outcome] = archive(histories, to)
    assert outcome.stays is None
    server.fail(fault, method, times=1)
    assert content(histories) == before
    server.fail(fault, "POST", times=1)
    assert_nothing_is_lost(histories, server, prefix, before)


@pytest.mark.parametrize("pause_s", [0.1, pytest.param(1.0, marks=pytest.mark.long)])
def test_slow_object_store_only_takes_longer(server, histories, prefix, to, pause_s):
    before = content(histories)
    server.pause_s = pause_s
    server.fail(Fault.SLOW)
    assert [outcome.stays for outcome in archive(histories, to)] == [None]
    assert content(histories) == before
    assert_nothing_is_lost(histories, server, prefix, before)


# -- a request that always fails


@pytest.mark.parametrize(
    "fault, methods, action",
    [
        (Fault.UNAVAILABLE, ALL, "look for"),
        (Fault.UNAVAILABLE, ["PUT"], "write"),
        (Fault.UNAVAILABLE, ["GET"], "read"),
        (Fault.CUT_BEFORE, ALL, "look for"),
        (Fault.CUT_BEFORE, ["PUT"], "write"),
        (Fault.CUT_AFTER, ["PUT"], "write"),
        (Fault.HALF_AN_ANSWER, ["GET"], "read"),
        (Fault.SILENT, ALL, "look for"),
        (Fault.SILENT, ["PUT"], "write"),
        (Fault.READ_ONLY, ALL, "write"),
        (Fault.REFUSED, ALL, "write"),
        (Fault.REFUSED, ["GET"], "read"),
    ],
)
def test_failed_archiving_loses_nothing(
    server, histories, prefix, to, fault, methods, action, monkeypatch
):
    if fault is Fault.SILENT:
        monkeypatch.setenv("AWS_TIMEOUT", "50ms")
    before = content(histories)
    server.fail(fault, *methods)
    with refusal(fault, f"cannot {action} the object "):
        archive(histories, to)
    monkeypatch.delenv("AWS_TIMEOUT", raising=False)
    archive_objects._store.cache_clear()
    assert histories.store.conversation("c").archived == 0
    assert content(histories) == before
    assert_nothing_is_lost(histories, server, prefix, before)


def test_an_object_with_other_bytes_stops_no_other_conversation(server, histories, prefix, to):
    before = content(histories)
    fill(histories, "d")
    server.fail(Fault.OTHER_BYTES, "GET", times=1)
    outcomes = {outcome.conversation: outcome for outcome in archive(histories, to)}
    stays = [outcome.stays for outcome in outcomes.values() if outcome.stays]
    (problem,) = stays
    assert problem.startswith(f"the object {to}/")
    assert "the events are whole in this store" in problem
    assert "erase" not in problem
    assert [outcome.events for outcome in outcomes.values() if not outcome.stays] == [19]
    assert content(histories) == before
    assert {outcome.stays for outcome in archive(histories, to)} == {None}
    histories.erase("d", reason="asked for")
    assert_nothing_is_lost(histories, server, prefix, before)


@pytest.mark.parametrize(
    "fault", [Fault.UNAVAILABLE, Fault.CUT_BEFORE, Fault.HALF_AN_ANSWER, Fault.REFUSED]
)
def test_unreadable_object_stays_archived(server, histories, prefix, to, fault):
    before = content(histories)
    archive(histories, to)
    server.fail(fault)
    for use in (content, lambda histories: histories["c"].append(before[0].event)):
        with refusal(fault, f"cannot read the object {to}/"):
            use(histories)
    assert histories.store.conversation("c").archived == len(before) - 1
    assert_nothing_is_lost(histories, server, prefix, before)


@pytest.mark.parametrize(
    "fault", [Fault.UNAVAILABLE, Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.READ_ONLY]
)
def test_undeletable_object_is_deleted_later(server, histories, prefix, to, fault):
    archive(histories, to)
    server.fail(fault, "POST", "DELETE")
    with refusal(fault, "'c' is erased for every reader") as caught:
        histories.erase("c", reason="asked to")
    assert caught.value.unfinished
    with pytest.raises(ConversationErased):
        content(histories)
    with refusal(fault, "an object or a file could not be deleted"):
        histories.maintenance.vacuum()
    server.heal()
    histories.maintenance.vacuum()
    assert keys_in(server, prefix) == []


def test_missing_bucket_is_named(server, histories, prefix, to, monkeypatch):
    before = content(histories)
    missing = to.replace(BUCKET, f"missing-{prefix}")
    answer = server.backend.answer

    def answer_without_bucket(method, path, headers, body):
        if path.startswith("/missing-"):
            path = f"/{BUCKET}/{prefix}/nothing"
            method = "GET"  # the answer to a request for a bucket that does not exist is 404 too
        return answer(method, path, headers, body)

    monkeypatch.setattr(server.backend, "answer", answer_without_bucket)
    with pytest.raises(StoreRefused, match="its bucket does not exist; make the bucket"):
        archive(histories, missing)
    assert_nothing_is_lost(histories, server, prefix, before)


# -- another object than the one that was written


@pytest.mark.parametrize("is_of_another_store", [False, True], ids=["own", "other-store"])
def test_exchanged_object_is_named(server, histories, prefix, to, tmp_path, is_of_another_store):
    before = content(histories)
    archive(histories, to)
    [key] = keys_in(server, prefix)
    if is_of_another_store:
        with foldlog.open(tmp_path / "other.db") as others:
            fill(others, "c")
            archive(others, to)
    else:
        fill(histories, "d")
        archive(histories, to)
    [other] = {*keys_in(server, prefix)} - {key}
    whole = server.call("GET", key).body
    server.call("PUT", key, server.call("GET", other).body)
    problem = "was changed or exchanged: its hash differs"
    with pytest.raises(
        StoreRefused, match=f"the object s3://{BUCKET}/{key} of .* 'c' {problem}; put the object"
    ):
        content(histories)
    [verdict] = histories.maintenance.verify("c")
    assert problem in str(verdict.findings)
    server.call("PUT", key, whole)
    assert content(histories) == before


# -- several archivers


def test_two_archivers_at_once_lose_nothing(server, histories, path, prefix, to):
    names = [f"c{number}" for number in range(6)]
    for name in names:
        fill(histories, name)
    before = {name: content(histories, name) for name in names}
    begin = threading.Barrier(2)

    def run(_):
        with foldlog.open(path) as own:
            begin.wait(30)
            return archive(own, to)

    with ThreadPoolExecutor(2) as threads:
        outcomes = [outcome for result in threads.map(run, range(2)) for outcome in result]
    done = [outcome.conversation for outcome in outcomes if outcome.stays is None]
    assert done
    assert len(done) == len({*done})
    histories.maintenance.vacuum()
    assert_named(histories, server, prefix)
    assert {name: content(histories, name) for name in names} == before


# -- a copied file


@pytest.fixture
def copy_path(server, histories, path, to, tmp_path):
    archive(histories, to)
    histories.close()
    return shutil.copy(path, tmp_path / "copy.db")


def test_erasure_in_a_copied_file_leaves_the_object(server, copy_path, path, prefix, to):
    with foldlog.open(copy_path) as copy:
        assert copy.erase("c", reason="asked to").bytes_pending
        with pytest.raises(ConversationErased):
            content(copy)
        said = f"^the object {to}/.* was not deleted: .* store vacuum --copied-objects'"
        with pytest.raises(StoreRefused, match=said) as caught:
            copy.maintenance.vacuum()
        assert caught.value.unfinished
    with foldlog.open(path) as histories:
        assert len(content(histories)) == 20
    with foldlog.open(copy_path) as copy:
        copy.maintenance.vacuum(copied_objects=True)
        copy.maintenance.vacuum()
    assert keys_in(server, prefix) == []


def test_copy_with_the_same_inode_leaves_the_object(histories, server, prefix, to, monkeypatch):
    archive(histories, to)
    status_of = os.statvfs

    def elsewhere(path):
        status = status_of(path)
        return SimpleNamespace(f_fsid=status.f_fsid + 1)

    monkeypatch.setattr(os, "statvfs", elsewhere)
    assert histories.erase("c", reason="asked to").bytes_pending
    assert len(keys_in(server, prefix)) == 1


def test_redaction_in_a_copied_file_leaves_the_object(copy_path, path):
    with foldlog.open(copy_path) as copy:
        assert copy["c"].redact(3, reason="asked to").bytes_pending
        assert content(copy)[3].event.redacted is not None
        assert not any(verdict.findings for verdict in copy.maintenance.verify())
    with foldlog.open(path) as histories:
        assert content(histories)[3].event.redacted is None


def test_copied_file_deletes_its_own_objects(server, copy_path, prefix, to):
    [shared] = keys_in(server, prefix)
    with foldlog.open(copy_path) as copy:
        content(copy)
        archive(copy, to)
        assert len(keys_in(server, prefix)) == 2
        copy.erase("c", reason="asked to")
        assert keys_in(server, prefix) == [shared]
