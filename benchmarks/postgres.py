"""Measure a store on PostgreSQL. The baselines are the recorder of the eventsourcing library, and
hand-written SELECTs.

``python -m benchmarks.postgres`` starts its own servers and prints a table. The standby is 5 ms
away: a proxy delays each chunk between standby and primary by 2.5 ms in each direction, without a
limit on the rate (``tests/postgres/delay.py``). Both foldlog and the library use the same server
through the TCP loopback, with one connection for each writer. For some questions, another such
proxy puts the server some milliseconds away from foldlog and from the library.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import msgspec
import psycopg
from eventsourcing.persistence import StoredEvent
from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

from benchmarks.frame import SCALES, Answer, Question, Round, Scale, as_json, ask
from benchmarks.raw import DECODE, body_of, timeless
from benchmarks.speed_page import table
from benchmarks.workload import history
from foldlog.eventstore import Message, Store, open_store
from foldlog.projections import Views
from tests.ports import free_port, listens
from tests.postgres.servers import Server, new_primary
from tests.waiting import until

LIBRARY = "the library's recorder"
DELAY_MS = 5.0
CONVERSATIONS = 10_000

Append = Callable[[str, int], None]
"""Appends one batch to a conversation that is at the given version."""


@contextlib.contextmanager
def away(port: int, milliseconds: float) -> Iterator[int]:
    """Start a proxy that makes the server on ``port`` this number of milliseconds away, and yield
    the proxy's port.
    """
    near = free_port()
    proxy = subprocess.Popen(
        [sys.executable, "-m", "tests.postgres.delay", str(near), str(port), str(milliseconds / 2)]
    )
    try:
        until(lambda: listens(near))
        yield near
    finally:
        proxy.terminate()
        proxy.wait()


@contextlib.contextmanager
def servers(*, standby: bool) -> Iterator[Server]:
    """Start a primary and, if ``standby``, a synchronous standby ``DELAY_MS`` away."""
    folder = Path(tempfile.mkdtemp(prefix="foldlog-servers-"))
    folder.chmod(0o755)
    with contextlib.ExitStack() as running:
        running.callback(shutil.rmtree, folder, ignore_errors=True)
        primary = new_primary(folder / "primary", {"max_wal_size": "4GB"})
        running.callback(primary.stop, "immediate")
        if standby:
            port = running.enter_context(away(primary.port, DELAY_MS))
            far = Server(folder / "standby")
            far.follow(primary, "far", port=port)
            far.start()
            running.callback(far.stop, "immediate")
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'far'")
            primary.reload()
            synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
            until(lambda: primary.sql(synchronous) == "1")
        yield primary


@contextlib.contextmanager
def ours(primary: Server, writers: int, batch: int) -> Iterator[Append]:
    text = os.urandom(600).hex()
    with open_store(primary.url(schema="ours", connections_max=str(writers))) as store:

        def append(conversation: str, version: int) -> None:
            events = [Message(source="user", content=text) for _ in range(batch)]
            store.append(conversation, events, expected_version=version)

        yield append


@contextlib.contextmanager
def library(primary: Server, writers: int, batch: int) -> Iterator[Append]:
    body = msgspec.json.encode({"content": os.urandom(600).hex()})
    datastore = PostgresDatastore(
        "postgres",
        "127.0.0.1",
        primary.port,
        "postgres",
        "",
        pool_size=writers,
        originator_id_type="text",
    )
    recorder = PostgresApplicationRecorder(datastore)
    recorder.create_table()

    def append(conversation: str, version: int) -> None:
        recorder.insert_events(
            [StoredEvent(conversation, version + n, "message/1", body) for n in range(batch)]
        )

    try:
        yield append
    finally:
        datastore.close()


def events_a_second(append: Append, writers: int, batch: int, seconds: float) -> float:
    """Return the events a second of several writers. Each writer appends to its own conversation,
    as fast as it can. Raises the error of a writer that fails.
    """
    conversations = [uuid.uuid4().hex for _ in range(writers)]
    all_started = threading.Barrier(writers)

    def begin(conversation: str) -> None:
        all_started.wait()  # each writer then needs its own connection
        append(conversation, 0)

    def write(conversation: str) -> int:
        version = batch
        while time.monotonic() < end:
            append(conversation, version)
            version += batch
        return version - batch

    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(begin, conversations))
        began = time.monotonic()
        end = began + seconds
        events = sum(pool.map(write, conversations))
        return events / (time.monotonic() - began)


def appending(
    writers: int, batch: int, *, standby: bool = False, client_ms: float = 0
) -> Callable[[Scale, Path], Iterator[Round]]:
    def measure(scale: Scale, folder: Path) -> Iterator[Round]:
        seconds = 0.3 if scale.name == "smoke" else 2.0
        with (
            servers(standby=standby) as primary,
            (
                away(primary.port, client_ms) if client_ms else contextlib.nullcontext(primary.port)
            ) as port,
            ours(Server(primary.folder, port), writers, batch) as our_append,
            library(Server(primary.folder, port), writers, batch) as their_append,
        ):
            for _ in range(scale.rounds):
                yield Round(
                    1 / events_a_second(our_append, writers, batch, seconds),
                    1 / events_a_second(their_append, writers, batch, seconds),
                )

    return measure


def fill(store: Store, primary: Server, conversations: int) -> list[str]:
    """Put the same conversations of 20 to 60 events into foldlog's store and into a minimal table
    with one index. Return the names of the conversations.
    """
    with psycopg.connect(primary.url()) as connection:
        connection.execute(
            "CREATE TABLE plain (conversation text, id int, kind text, body bytea, PRIMARY KEY"
            " (conversation, id))"
        )
        names = [f"conversation {n}" for n in range(conversations)]
        bodies = [(event, body_of(event)) for event in history(60)]
        for name in names:
            length = random.Random(name).randint(20, 60)
            store.ingest(name, [event for event, _ in bodies[:length]])
            with (
                connection.cursor() as cursor,
                cursor.copy("COPY plain FROM STDIN (FORMAT binary)") as copy,
            ):
                copy.set_types(["text", "int4", "text", "bytea"])
                for event, body in bodies[:length]:
                    copy.write_row((name, event.id, "event", body))
        connection.commit()
    primary.sql("VACUUM ANALYZE")
    return names


def opening(scale: Scale, folder: Path) -> Iterator[Round]:
    """Read one conversation of many, and decode its events. Both sides are connected."""
    count = 200 if scale.name == "smoke" else CONVERSATIONS
    with (
        servers(standby=False) as primary,
        open_store(primary.url(schema="ours")) as store,
        psycopg.connect(primary.url(), autocommit=True) as connection,
    ):
        names = fill(store, primary, count)
        for _ in range(scale.rounds):
            chosen = random.sample(names, min(200, count))
            spent = {"ours": 0.0, "raw": 0.0}
            for name in chosen:
                begun = time.perf_counter()
                rows = connection.execute(
                    "SELECT body FROM plain WHERE conversation = %s ORDER BY id",
                    (name,),
                    prepare=True,
                    binary=True,
                ).fetchall()
                by_hand = [DECODE(body) for (body,) in rows]
                spent["raw"] += time.perf_counter() - begun
                begun = time.perf_counter()
                events = list(store.events(name))
                spent["ours"] += time.perf_counter() - begun
                if timeless(events) != by_hand:
                    raise AssertionError("the two sides read different events")
            yield Round(spent["ours"] / len(chosen), spent["raw"] / len(chosen))


def growing(scale: Scale, folder: Path) -> Iterator[Round]:
    """Open Views of the same size of a short and of a long history."""
    short = scale.short
    long = scale.long
    with servers(standby=False) as primary, open_store(primary.url(schema="ours")) as store:
        views = Views(store)
        store.register(views)
        for length in (short, long):
            store.ingest(f"of {length}", history(length))
        primary.sql("VACUUM ANALYZE")
        for _ in range(scale.rounds):
            yield Round(_time_opening(views, f"of {long}"), _time_opening(views, f"of {short}"))


def _time_opening(views: Views, conversation: str) -> float:
    begun = time.perf_counter()
    for _ in range(20):
        len(views.current(conversation).events)
    return (time.perf_counter() - begun) / 20


FAR = f"standby {DELAY_MS:g} ms away"
QUESTIONS = [
    Question(f"32 writers, {FAR}", "events/s", 10, appending(32, 1, standby=True), LIBRARY),
    Question(
        f"32 writers, batches of 20, {FAR}", "events/s", 3, appending(32, 20, standby=True), LIBRARY
    ),
    Question("32 writers, loopback", "events/s", 1.5, appending(32, 1), LIBRARY),
    Question("8 writers, batches of 20, loopback", "events/s", 1.5, appending(8, 20), LIBRARY),
    Question("1 writer, loopback", "events/s", 1, appending(1, 1), LIBRARY),
    Question("1 writer, server 2 ms away", "events/s", 2, appending(1, 1, client_ms=2), LIBRARY),
    Question("open one conversation of 10,000", "µs", 2, opening, "one SELECT"),
    Question("open a View, long history over short", "µs", 1.3, growing, "the short history"),
]


@click.command()
@click.argument("matching", default="")
@click.option("--scale", type=click.Choice([*SCALES]), default="full", show_default=True)
@click.option(
    "--results",
    type=Path,
    default=Path(__file__).parent / "results",
    help="Folder for the JSON.",
)
def main(matching: str, scale: str, results: Path) -> None:
    """Measure the questions about PostgreSQL that have targets. The exit status is 1 if a full run
    misses a target.
    """
    answers: list[Answer] = []
    before = os.getloadavg()[0]
    for question in QUESTIONS:
        if matching in question.name:
            print(f"{question.name} …", file=sys.stderr, flush=True)
            answers.append(ask(question, SCALES[scale], results))
    print("\n".join(table(QUESTIONS, answers)))
    if scale == "full":
        results.mkdir(parents=True, exist_ok=True)
        load = f"{before:.1f} to {os.getloadavg()[0]:.1f}"
        command = ["python", "-m", "benchmarks.postgres", *sys.argv[1:]]
        (results / "postgres.json").write_text(as_json(answers, [], load, command))
    if scale == "full" and not all(answer.holds for answer in answers):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
