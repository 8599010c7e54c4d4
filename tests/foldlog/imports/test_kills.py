"""If a process is killed between any two transactions of its work on a source, the next process
finishes the work.
"""

from itertools import count

import pytest
from msgspec.structs import replace

import foldlog
from foldlog.eventstore import Redaction
from tests.between import Killed
from tests.foldlog.imports.imports import (
    KEYS,
    bytes_of,
    events_of,
    figures_of,
    imported,
    open_with_imports,
    set_sizes,
)
from tests.foldlog.records import lines_of
from tests.sound import assert_sound


def killed_after(store, transactions, monkeypatch):
    """Let a store raise ``Killed`` when it begins one more write transaction than these."""
    recorder = store.database.recorder
    numbers = count()
    transact = recorder.transact

    def counted(work, *args, **options):
        if next(numbers) >= transactions:
            raise Killed
        return transact(work, *args, **options)

    monkeypatch.setattr(recorder, "transact", counted)


LINES = lines_of("claude-code")
WHOLE = b"".join(LINES)


def grow(store, path):
    path.write_bytes(b"".join(LINES[: len(LINES) // 2]))
    imported(store, path)
    path.write_bytes(WHOLE)
    imported(store, path)


def use(store, path):
    path.write_bytes(WHOLE)
    store.version(imported(store, path).conversation)


def fork(store, path):
    use(store, path)
    path.write_bytes(b"".join([*LINES[:-4], LINES[-1]]))
    imported(store, path)


def read_conversations(store):
    rows = [row.id for row in store.conversations()]
    return [
        (name, bytes_of(store, name), imported_in(store, name), figures_of(store, name))
        for name in sorted(rows)
    ]


def imported_in(store, name):
    """Return all events except receipts, without marks of redaction: their times differ."""
    events = [event for event in events_of(store, name) if not isinstance(event, Redaction)]
    return [event if event.redacted is None else replace(event, redacted=None) for event in events]


@pytest.fixture(autouse=True)
def _small_transactions(monkeypatch):
    """Make blocks and transactions so small that each work needs many of them."""
    set_sizes(monkeypatch, block=3_000, transaction=3_000, events=8, recorded_block=300, chunk=4)


def redact_one(store, path):
    use(store, path)
    (row,) = store.conversations()
    history = foldlog.Histories(store)[row.id]
    if not any(event.redacted for event in history.events()):
        history.redact(3, reason="asked for", by="me")


def record(store, path):
    """Hand over records one by one, as a runtime that begins again where it was, until they are put
    together.
    """
    history = foldlog.Histories(store)["recorded"]
    records = [{"role": "user", "content": f"{number} {'words ' * 9}"} for number in range(12)]
    for each in records[history.version() :]:
        history.append_records([each], format="openai-chat")


LONG = ("sqlite-sealed", "postgresql", "postgresql-sealed")


@pytest.fixture(
    params=["sqlite", *(pytest.param(database, marks=pytest.mark.long) for database in LONG)]
)
def new_place(request, url_on):
    """Return a function that opens another store, a new one for each call."""
    database, _, sealed = request.param.partition("-")

    def place():
        url = url_on(database, another=True)
        return lambda: open_with_imports(url, keys=KEYS if sealed else None)

    return place


@pytest.mark.parametrize("work", [grow, use, fork, redact_one, record])
def test_killed_work_goes_on(work, new_place, tmp_path, monkeypatch, whole):
    path = tmp_path / "session.jsonl"
    with open_with_imports() as store:
        work(store, path)
        expected = read_conversations(store)
    for transactions in count(0, 1 if whole else 2):
        opened = new_place()
        is_over = True
        with opened() as store, monkeypatch.context() as patched:
            killed_after(store, transactions, patched)
            try:
                work(store, path)
            except Killed:
                is_over = False
        with opened() as store:
            assert_sound(store)
            work(store, path)
            assert read_conversations(store) == expected, transactions
            assert_sound(store)
        if is_over:
            assert transactions > 2
            return
