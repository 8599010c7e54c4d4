"""Make the golden files: what this version stores, which every later version has to read.

    python -m tests.golden.make

It writes ``stores/schema-N.db.gz`` of the present schema, the rows of the same store on PostgreSQL in
``stores/schema-N.postgresql.json.gz``, and what is in these stores beside them. A file that is there
stays as it is, so only a new schema gets a file.
"""

import base64
import gzip
import json
import sqlite3
import tempfile
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from unittest.mock import patch

import foldlog
from foldlog._app.server.notes import Notes
from foldlog.eventstore import (
    ANY_VERSION,
    DELETED,
    Annotation,
    CondensationAction,
    KeyRing,
    Observation,
    Origin,
    Retraction,
    open_store,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.log import streams
from foldlog.eventstore.maintenance.archive import archive
from foldlog.eventstore.maintenance.copy import copy_store
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.recorders.sqlite import schema
from foldlog.eventstore.recorders.statements import migrations
from foldlog.projections import Views
from tests.foldlog.imports.imports import bytes_of
from tests.golden import postgres
from tests.postgres.servers import new_primary
from tests.said import said

GOLDEN = Path(__file__).parent
KEYS = KeyRing(["11" * 32])
LONG = 1_001
LONG_TEXT = "a change is stored as a difference where that is shorter " * 10


def history():
    """Return ten events: messages, annotations, two condensations and what a retraction takes
    back.
    """
    return [
        said("one"),
        Observation(content="two", tool="ls", call_id="call-1"),
        said("three"),
        CondensationAction(forgotten_event_ids=[1], summary="a summary", summary_offset=1),
        said("four"),
        Annotation(name="usage", data={"tokens": 12}),
        CondensationAction(forgotten_events_start_id=2, forgotten_events_end_id=4),
        said("five"),
        Retraction(version=7),
        said("six"),
    ]


ARCHIVE = "file:///archive"
"""Where a golden store says that its archived conversation is."""


def make_store(url, folder, take):
    """Make a store with each thing that a store may hold, and call ``take`` while a worker has its
    lease. Return what a reader finds in the store.
    """
    for compression in ("none", "zlib", "zstd"):
        with open_store(url, compression=compression) as store:
            fill(store, f"plain {compression}")
    with open_store(url) as store:
        store.append("begun plain", history()[:4], expected_version=0)
        store.ingest(
            "long",
            [said(f"message {n}", origin=Origin(format="golden", id=n)) for n in range(LONG)],
        )
        store.ingest("exact", [said("a \ud800 b"), Annotation(name="n", data=float("inf"))])
        for name in ("gone", "used again"):
            store.append(name, [said("secret"), said("secrets")], expected_version=0)
            erase(store, name, reason="asked for")
    for compression in ("none", "zlib", "zstd"):
        with open_store(url, compression=compression, keys=KEYS) as store:
            fill(store, f"encrypted {compression}")
    with foldlog.open(url, keys=KEYS) as histories:
        store = histories.store
        store.append("begun plain", history()[4:], expected_version=4)
        histories.create("used again", replace_erased=True).append(said("new"))
        store.append(
            "bytes",
            Annotation(name="raw", data=[b"\x00\xff" * 600, {"again": b"\x00\xff" * 600}]),
            expected_version=0,
        )
        store.append(
            "redacted", [said("a kite"), said("a secret"), said("the end")], expected_version=0
        )
        redact(store, "redacted", 1, reason="asked for", by="somebody")
        for parent, name in (("plain none", "fork"), ("plain none", "left"), ("left", "detached")):
            store.fork(parent, 5, name)
            store.append(name, said(f"on in {name}"), expected_version=5)
        erase(store, "left", reason="asked for", detach_forks=True)
        documents = histories["documents"]
        documents.append(
            said("with documents"),
            documents={"plan": {"steps": [1], "why": LONG_TEXT}, "draft": "x"},
        )
        documents.append(
            (), documents={"plan": {"steps": [1, 2], "why": LONG_TEXT}, "draft": DELETED}
        )
        documents.set_attributes(title="Kites", tags=["wind", "sky"])
        import_sources(histories, folder)
        store.append("archived", history(), expected_version=0)
        archive(store, "archived", f"file://{folder}/objects")
        Notes(store).change("documents", 0, "a note")
        work(histories["working"])
        for name in ("exact", "working"):  # one is plain, and one encrypted
            write_streams(store, name)
        histories.list()  # writes the figures and the list
        with histories["working"].lease(ttl_s=5, worker="a worker"):
            take()
            return contents(histories)


def record(number, text, session):
    """Return a record of a coding agent's log."""
    role = "assistant" if number % 2 else "user"
    return {
        "type": role,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number else None,
        "message": {"role": role, "content": text},
        "sessionId": session,
        "timestamp": f"2026-01-05T09:00:{number:02}.000Z",
    }


def import_sources(histories, folder):
    """Import one source that is used and grows, one that is never used, and one of which a record
    is redacted. Copy another store that refuses a record. Erase a source.
    """
    with patch("foldlog._imports.writing._storable", lambda path: Path(path).name):
        for name in ("used", "unused", "blanked", "erased source"):
            write_source(folder, name, 4)
            histories.import_(folder / f"{name}.jsonl")
        len(list(histories["used"].events()))
        write_source(folder, "used", 6)
        histories.import_(folder / "used.jsonl")
        histories["blanked"].redact(2, reason="asked for", by="somebody")
        histories.erase("erased source", reason="asked for")
        with foldlog.open("memory:") as others:
            write_source(folder, "copied", 4)
            others.import_(folder / "copied.jsonl")
            others["copied"].redact(1, reason="asked for", by="somebody")
            list(copy_store(others.store, histories.store))


def write_source(folder, name, records):
    lines = (json.dumps(record(number, f"{name} {number}", name)) for number in range(records))
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))


def work(history):
    """Call two tools: the worker ends in the second, whose effect is then unknown."""
    history.append(said("pay, then mail"))
    for call_id in ("pay", "mail"):
        function = {"name": call_id, "arguments": "{}"}
        call = {"id": call_id, "type": "function", "function": function}
        history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
        tool = (lambda: "paid") if call_id == "pay" else end_worker
        try:
            with history.lease(worker="a worker that ended"):
                history.run(history.open_calls()[0], tool)
        except KeyboardInterrupt:
            pass
    history.append(said("and?"), idempotency_key="asked")


def write_streams(store, name):
    """Write a stream that became an event, and one that is open."""

    def begin(writing):
        stream = streams.begin(writing, "reply", streams.JSON)
        return streams.append(writing, stream.number, 0, 2, b'["a ","kite"]').number

    number = store.project(name, begin)
    store.append(
        name,
        said("a kite"),
        expected_version=ANY_VERSION,
        also=lambda writing: streams.close(writing, number),
    )
    store.project(name, begin)


def end_worker():
    raise KeyboardInterrupt


def fill(store, name):
    store.register(Views(store))
    store.append(name, history(), expected_version=0, idempotency_key="filled")


def contents(histories):
    """Return what a reader finds in a store: heads, events, Views, past Views, documents, calls,
    imported records, notes, and the order of the whole store. A long list is given as its SHA-256.
    """
    store = histories.store
    return {
        "conversations": {row.id: contents_of(histories, row) for row in store.conversations()},
        "order": short(
            [
                (entry.position, entry.conversation, entry.event.id, type(entry.event).__name__)
                for entry in store.follow()
            ]
        ),
    }


def contents_of(histories, row):
    store = histories.store
    found = {"version": row.version, "head": row.head}
    if row.erased_at is not None:
        return {**found, "erased": [row.erased_at.isoformat(), row.erased_reason]}
    found["records"] = sha256(bytes_of(store, row.id)).hexdigest()
    if row.id in ("archived", "unused", "used"):  # reading them would change the store
        return found
    if texts := store.query(row.id, streams_in):
        found["streams"] = texts
    history = histories[row.id]
    step = max(1, row.version // 20)
    past = [[event.id for event in history.at(n)] for n in range(0, row.version, step)]
    return found | {
        "events": short([encode(event, ours=True).body.decode() for event in history.events()]),
        "view": short([event.id for event in history.view()]),
        "past": short(past),
        "documents": history.documents(),
        "attributes": history.attributes(),
        "open calls": [call.call_id for call in history.open_calls()],
        "effects": [[effect.key, effect.state] for effect in history.effects()],
        "notes": [[note.event, note.text] for note in Notes(store).of(row.id).notes],
    }


def streams_in(reading):
    return [
        [stream.name, stream.end, stream.event]
        + [chunk.body.decode() for chunk in reading.chunks(stream, 0, 10)]
        for stream in reading.streams()
    ]


def short(items):
    return items if len(items) < 20 else sha256(json.dumps(items).encode()).hexdigest()


def make_file_of_sqlite():
    packed = GOLDEN / "stores" / f"schema-{schema.NEWEST}.db.gz"
    if packed.exists():
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = make_store(f"sqlite:///{folder}/store.db", folder, lambda: copy_file(folder))
        packed.write_bytes(gzip.compress((folder / "copy.db").read_bytes(), mtime=0))
        packed.with_suffix("").with_suffix(".json").write_text(
            json.dumps({**found, "objects": objects_in(folder)}, indent=1) + "\n"
        )


def make_file_of_postgresql():
    packed = GOLDEN / "stores" / f"schema-{max(migrations('postgresql'))}.postgresql.json.gz"
    if packed.exists():
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = new_primary(folder / "server")
        dumped = {}
        try:
            found = make_store(
                server.url(schema="golden"),
                folder,
                lambda: dumped.update(postgres.dump(server.url(), "golden")),
            )
        finally:
            server.remove()
        rows = postgres.moved(dumped["rows"], f"file://{folder}/objects", ARCHIVE)
        golden = {**dumped, "rows": rows, "contents": found, "objects": objects_in(folder)}
        postgres.write(packed, golden)


def copy_file(folder):
    with (
        closing(sqlite3.connect(folder / "store.db")) as store,
        closing(sqlite3.connect(folder / "copy.db")) as copy,
    ):
        store.backup(copy)
        move_archive(copy, f"file://{folder}/objects", ARCHIVE)


def move_archive(connection, before, after):
    connection.execute("UPDATE unfinished SET state = replace(state, ?, ?)", (before, after))
    connection.commit()


def objects_in(folder):
    return {
        path.name: base64.b64encode(path.read_bytes()).decode()
        for path in (folder / "objects").iterdir()
    }


def put_objects(objects, folder):
    """Put the archived objects of a golden store into a folder."""
    folder.mkdir()
    for name, data in objects.items():
        (folder / name).write_bytes(base64.b64decode(data))


def main():
    make_file_of_sqlite()
    make_file_of_postgresql()


if __name__ == "__main__":
    main()
