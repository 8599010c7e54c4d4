"""Make the golden files: what this version stores, which every later version has to read.

    python -m tests.golden.make

It writes ``stores/schema-N.db.gz`` of the present schema, ``stores/schema-N.json``, which says what
is in that store, and what is stored of the records in ``imports/``. The files of earlier schemas
stay as they are: run this again only for a new schema.
"""

import gzip
import json
import tempfile
from hashlib import sha256
from pathlib import Path

import foldlog
from foldlog import formats
from foldlog.eventstore import (
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
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.redact import redact
from foldlog.eventstore.recorders.sqlite import schema
from foldlog.projections import Views
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


def make_store(path):
    """Make a store with each thing that a store may hold. Return what a reader finds in it."""
    url = f"sqlite:///{path}"
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
        return contents(store)


def fill(store, name):
    store.register(Views(store))
    store.append(name, history(), expected_version=0, idempotency_key="filled")


def contents(store):
    """Return what a reader finds in a store: heads, events, Views, and the order of the whole
    store. A long list is given as its SHA-256.
    """
    views = Views(store)
    conversations = {}
    for row in store.conversations():
        events = (
            []
            if row.erased_at is not None
            else [encode(each, ours=True).body.decode() for each in store.events(row.id)]
        )
        view = [event.id for event in views.current(row.id)] if events else []
        conversations[row.id] = {
            "version": row.version,
            "head": row.head,
            "events": short(events),
            "view": short(view),
        }
    order = [
        (each.position, each.conversation, each.event.id, type(each.event).__name__)
        for each in store.follow()
    ]
    return {"conversations": conversations, "order": short(order)}


def short(items):
    return items if len(items) < 20 else sha256(json.dumps(items).encode()).hexdigest()


def make_imports():
    for path in sorted((GOLDEN / "imports").glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines:
            format = line["format"]
            encoded = [
                encode(event, ours=True) for event in formats.decode(line["records"], format=format)
            ]
            line["stored"] = [[each.kind, each.schema, each.body.decode()] for each in encoded]
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        said_to_be_there = make_store(path)
        name = GOLDEN / "stores" / f"schema-{schema.NEWEST}"
        name.with_suffix(".db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        name.with_suffix(".json").write_text(json.dumps(said_to_be_there, indent=1) + "\n")
    make_imports()


if __name__ == "__main__":
    main()
