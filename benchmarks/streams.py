"""Measure a reply that is stored while the model writes it: ``python -m benchmarks.streams
[QUESTION]… [--db URL] [--peer FOLDER]``.

\b
chunk    the CPU time of a chunk of 20 characters, with and without a lease, by turns
latency  the time from a chunk to a reader in another process, at 500 chunks a second
append   the CPU time of an append beside a stream of 50 chunks a second of another process, and
         alone, by turns
turns    the CPU time of an append after each chunk of another writer of its store, and after each
         chunk of a writer of another store

\b
readers  the time from a chunk to 100 readers of the service, at 50 chunks a second
post     the CPU time of the service for a POST of 20 characters
space    the size of a store after a reply of 5,000 chunks, and after the same reply in one piece,
         when both were vacuumed

``readers`` and ``post`` measure the server of the protocol Durable Streams by turns, if
``npm install @durable-streams/server`` ran in FOLDER.

Each question has a new SQLite file in the folder for temporary files, or the store at URL. The
other store of ``turns`` is a SQLite file.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median, quantiles

import click

import foldlog
from benchmarks import streams_over_http
from foldlog import Histories, History
from foldlog.eventstore.log import streams
from foldlog.types import StreamedReply, TextDelta

CHUNKS = 3_000
CHUNKS_PER_S = 500
LATENCY_S = 8
APPENDS = 1_000
BESIDE_PER_S = 50
TURNS = 4
SPACE_CHUNKS = 5_000
USER = {"role": "user", "content": "what is a kite?"}


def chunk_cpu_us(history: History, *, leases: bool) -> float:
    with history.lease() if leases else nullcontext(), history.stream_reply() as reply:
        for _ in range(200):
            reply.feed("x" * 20)
        start = time.process_time()
        for _ in range(CHUNKS):
            reply.feed("x" * 20)
        return (time.process_time() - start) / CHUNKS * 1e6


def measure_chunk(url: str) -> None:
    for _ in range(TURNS):
        times = []
        for leases in (True, False):
            with foldlog.open(url) as histories:
                history = histories[str(uuid.uuid4())]
                history.append(USER)
                times.append(chunk_cpu_us(history, leases=leases))
        click.echo(f"a chunk: {times[0]:.0f} us with a lease, {times[1]:.0f} us without")


def append_cpu_us(history: History) -> float:
    start = time.process_time()
    for number in range(APPENDS):
        history.append({"role": "user", "content": f"hello {number}"})
    return (time.process_time() - start) / APPENDS * 1e6


def measure_append(url: str) -> None:
    alone = []
    beside = []
    with foldlog.open(url) as histories:
        history = histories[str(uuid.uuid4())]
        append_cpu_us(history)
        for _ in range(2 * TURNS):
            alone.append(append_cpu_us(history))
            with writing(url, BESIDE_PER_S):
                beside.append(append_cpu_us(history))
    ratio = median(beside) / median(alone)
    click.echo(f"an append: {median(alone):.0f} us alone, {median(beside):.0f} us beside a stream")
    click.echo(f"ratio of the medians: {ratio:.2f}")


def measure_turns(url: str) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        foldlog.open(f"sqlite:///{Path(folder) / 'other.db'}") as elsewhere,
        foldlog.open(url) as beside,
        foldlog.open(url) as histories,
    ):
        history = histories[str(uuid.uuid4())]
        append_cpu_us(history)
        times: list[list[float]] = [[], []]
        with unended_reply(beside) as here, unended_reply(elsewhere) as there:
            for _ in range(APPENDS):
                for reply, of_reply in zip((here, there), times, strict=True):
                    reply.feed("x" * 20)
                    start = time.process_time()
                    history.append(USER)
                    of_reply.append((time.process_time() - start) * 1e6)
    here_us, there_us = map(median, times)
    click.echo(
        f"an append after a chunk: {here_us:.0f} us, {there_us:.0f} us if the chunk is in another"
        f" store; ratio of the medians: {here_us / there_us:.2f}"
    )


@contextmanager
def unended_reply(histories: Histories) -> Iterator[StreamedReply]:
    history = histories[str(uuid.uuid4())]
    history.append(USER)
    reply = history.stream_reply()
    reply.feed("x")
    try:
        yield reply
    finally:
        reply.cancel()


def measure_space(url: str) -> None:
    """Measure files of SQLite, in the folder for temporary files."""
    pieces = [f"a text of 20 chars {number:05} " for number in range(SPACE_CHUNKS)]
    message = {"role": "assistant", "content": "".join(pieces)}
    sizes = []
    for is_streamed in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "streams.db"
            with foldlog.open(path) as histories:
                histories["c"].append(USER)
                if is_streamed:
                    with histories["c"].stream_reply() as reply:
                        for piece in pieces:
                            reply.feed(piece)
                    delete_ended_streams(histories)
                else:
                    histories["c"].append_reply({"choices": [{"index": 0, "message": message}]})
                histories.maintenance.vacuum()
            sizes.append(path.stat().st_size)
    streamed, whole = sizes
    click.echo(
        f"a reply of {SPACE_CHUNKS:,} chunks: {streamed:,} bytes, {whole:,} in one piece:"
        f" {streamed - whole:,} bytes left"
    )


def delete_ended_streams(histories: Histories) -> None:
    """Delete the streams of replies that have ended, as a writer or a vacuum does a minute later."""
    kept_s = streams.KEPT_S
    streams.KEPT_S = -1  # type: ignore[misc]
    try:
        streams.sweep_all(histories.store.database)
    finally:
        streams.KEPT_S = kept_s  # type: ignore[misc]


def measure_latency(url: str) -> None:
    with writing(url, CHUNKS_PER_S) as name, foldlog.open(url) as histories:
        waits = []
        end = time.monotonic() + LATENCY_S
        for _, delta in histories[name].follow_reply():
            if isinstance(delta, TextDelta):
                waits.append(time.monotonic() - float(delta.text))
            if time.monotonic() > end:
                break
    percent = quantiles(waits[CHUNKS_PER_S:], n=100)
    click.echo(
        f"chunk to reader, {len(waits)} chunks:"
        f" p50 {percent[49] * 1e3:.1f} ms, p99 {percent[98] * 1e3:.1f} ms"
    )


@contextmanager
def writing(url: str, per_s: int) -> Iterator[str]:
    """Write a reply in another process. Yield the name of its conversation."""
    name = str(uuid.uuid4())
    command = [sys.executable, "-m", "benchmarks.streams", "--write", name, str(per_s), "--db", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            yield name
        finally:
            writer.kill()


def write(url: str, name: str, per_s: int) -> None:
    with foldlog.open(url) as histories:
        history = histories[name]
        history.append(USER)
        with history.lease(), history.stream_reply() as reply:
            start = time.monotonic()
            number = 0
            while True:
                reply.feed(f"{time.monotonic():020.9f}")
                if number == 0:
                    click.echo("begun")
                number += 1
                time.sleep(max(0.0, start + number / per_s - time.monotonic()))


OVER_HTTP: dict[str, Callable[[str, Path | None], None]] = {
    "readers": streams_over_http.measure_readers,
    "post": streams_over_http.measure_post,
}
QUESTIONS: dict[str, Callable[[str], None]] = {
    "chunk": measure_chunk,
    "latency": measure_latency,
    "append": measure_append,
    "turns": measure_turns,
    "space": measure_space,
}


@click.command(help=__doc__)
@click.argument("questions", nargs=-1, type=click.Choice([*QUESTIONS, *OVER_HTTP]))
@click.option("--db", "url", help="The URL of a store.")
@click.option(
    "--peer",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder with the npm package @durable-streams/server.",
)
@click.option("--write", "writer", type=(str, int), hidden=True)
def main(
    questions: tuple[str, ...], url: str | None, peer: Path | None, writer: tuple[str, int] | None
) -> None:
    if writer is not None:
        if url is None:
            raise click.UsageError("--write needs --db")
        write(url, *writer)
        return
    for question in questions or [*QUESTIONS, *OVER_HTTP]:
        with tempfile.TemporaryDirectory() as folder:
            store = url or f"sqlite:///{Path(folder) / 'streams.db'}"
            if question in OVER_HTTP:
                OVER_HTTP[question](store, peer)
            else:
                QUESTIONS[question](store)


if __name__ == "__main__":
    main()
