"""Measure a reply that is stored while the model writes it: ``python -m benchmarks.streams
[QUESTION]… [--db URL]``.

\b
chunk    the CPU time of a chunk of 20 characters, with and without a lease, by turns
latency  the time from a chunk to a reader in another process, at 500 chunks a second
append   the CPU time of an append beside a stream of 50 chunks a second of another process, and
         alone, by turns
turns    the CPU time of an append after each chunk of another writer of its store, and after each
         chunk of a writer of another store

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
from foldlog import Histories, History
from foldlog.types import StreamedReply, TextDelta

CHUNKS = 3_000
CHUNKS_PER_S = 500
LATENCY_S = 8
APPENDS = 1_000
BESIDE_PER_S = 50
TURNS = 4
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
    alone, beside = [], []
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
    yield reply
    reply.cancel()


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


QUESTIONS: dict[str, Callable[[str], None]] = {
    "chunk": measure_chunk,
    "latency": measure_latency,
    "append": measure_append,
    "turns": measure_turns,
}


@click.command(help=__doc__)
@click.argument("questions", nargs=-1, type=click.Choice(list(QUESTIONS)))
@click.option("--db", "url", help="The URL of a store.")
@click.option("--write", "writer", type=(str, int), hidden=True)
def main(questions: tuple[str, ...], url: str | None, writer: tuple[str, int] | None) -> None:
    if writer is not None and url is not None:
        write(url, *writer)
        return
    for question in questions or QUESTIONS:
        with tempfile.TemporaryDirectory() as folder:
            QUESTIONS[question](url or f"sqlite:///{Path(folder) / 'streams.db'}")


if __name__ == "__main__":
    main()
