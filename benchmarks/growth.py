"""Measure how large one store may become: ``python -m benchmarks.growth [--events N] [--form FORM]…
[--folder FOLDER]``.

A form is a SQLite file or a PostgreSQL server. For each
form, the benchmark fills a large and a small store, runs the same operations on both in turn, and
prints Markdown. A conversation has 300 events with bodies of some
90 bytes, and four condensations. foldlog's own functions make the heads, checksums and revisions.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import click

from foldlog.eventstore import (
    ANY_VERSION,
    Action,
    CondensationAction,
    Event,
    Message,
    Observation,
    Store,
    open_store,
)
from foldlog.eventstore.codec import Encoded, encode
from foldlog.eventstore.documents.listing import recent_conversations
from foldlog.eventstore.log.row import checksum_seed, make_rows, new_salt, record_checksum
from foldlog.eventstore.maintenance.erase import erase
from foldlog.eventstore.maintenance.verify import Verdict, verify
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.recorders.types import Conversation, Record, Row
from foldlog.projections import Views
from foldlog.projections.stored.revision_codec import PROJECTION
from tests.postgres.servers import Server, new_primary

FORMS: Final = ("sqlite", "postgresql")
LENGTH: Final = 300
SMALL: Final = 30_000
LARGE_MIN: Final = 90_000
"""The small store has at most a tenth of the events. With fewer of them, it cannot list 20
conversations.
"""
_GROUP: Final = 50
"""The number of conversations in one transaction. PostgreSQL ends a transaction that is idle for 5 s,
and making the rows of a group takes a part of this time.
"""
_ROUNDS: Final = 5
_EACH: Final = 40


def history() -> Iterator[Event]:
    """Yield the events of each conversation: calls with their results, and a condensation every
    sixty events.
    """
    for index in range(LENGTH):
        if index and index % 60 == 0:
            yield CondensationAction(
                forgotten_event_ids=tuple(range(max(index - 70, 4), index - 10))
            )
        elif index % 2:
            yield Action(tool="terminal", arguments={"command": f"ls {index}"}, call_id=f"c{index}")
        elif index and (index - 1) % 60:
            yield Observation(
                tool="terminal", content="o" * 20, call_id=f"c{index - 1}", cause=index - 1
            )
        else:
            yield Message(source="user", content="m" * 40)


class Template:
    """The encoded events and the revisions of the View, which are the same in all conversations."""

    def __init__(self) -> None:
        self.batch: list[Encoded] = [encode(event, ours=True) for event in history()]
        with open_store("memory:") as store:
            store.register(Views(store))
            store.append("c", list(history()), expected_version=0)
            self._records = store.query("c", lambda read: list(read.records(PROJECTION)))

    def rows(self, name: str, salt: bytes, now: int) -> list[Row]:
        return make_rows(Conversation(0, name, now, salt), self.batch, now)[0]

    def records(self, name: str) -> Iterator[Record]:
        seed = checksum_seed(name)
        for template_record in self._records:
            yield template_record._replace(
                checksum=record_checksum(seed, PROJECTION, *template_record[:4])
            )


# -- fill a store
# --------------------------------------------------------------------------------------------------


def name_of(number: int) -> str:
    return f"conversation {number:07}"


def fill(store: Store, conversations: int) -> Sequence[int]:
    """Add the conversations in groups. Return the position of the last event of each group."""
    template, positions = Template(), []
    for first in range(0, conversations, _GROUP):
        group = range(first, min(first + _GROUP, conversations))
        store.database.recorder.transact(partial(_insert, template=template, group=group))
        positions.append(store.database.last_position)
    return positions


def _insert(transaction: Transaction, template: Template, group: Sequence[int]) -> None:
    now = time.time_ns() // 1_000
    for number in group:
        name, salt = name_of(number), new_salt()
        key = transaction.begin(Conversation(0, name, now, salt)).key
        transaction.insert(key, template.rows(name, salt, now))
        transaction.put_records(key, PROJECTION, list(template.records(name)))


# -- ask it
# --------------------------------------------------------------------------------------------------


class Asked:
    """A filled store, and the operations to measure. Each operation returns its time in µs."""

    def __init__(
        self, store: Store, server: Server | None, schema: str, conversations: int
    ) -> None:
        self._store, self._server, self._schema, self._count = store, server, schema, conversations
        self._chance = random.Random(7)
        began = time.perf_counter()
        self._positions = fill(store, conversations)
        self.filled_s = time.perf_counter() - began
        self._known = name_of(conversations // 2)

    def _any(self) -> str:
        return name_of(self._chance.randrange(1, self._count))  # 0 is erased

    def questions(self) -> dict[str, Callable[[], float]]:
        store, message = self._store, Message(source="user", content="m" * 40)

        def append(name: str) -> None:
            store.append(name, message, expected_version=ANY_VERSION)

        return {
            "append, the conversation is known": partial(_each, lambda: append(self._known)),
            "append to any conversation": partial(_each, lambda: append(self._any())),
            "open a View": partial(_each, lambda: Views(store).current(self._any())),
            "open a View of the past": partial(
                _each, lambda: Views(store).at(self._any(), LENGTH // 2)
            ),
            "read all events of a conversation": partial(
                _each, lambda: list(store.events(self._any()))
            ),
            "list the 20 last active": partial(_each, self._list),
            "follow 1,000 events from a position": partial(_each, self._follow, 3),
            "verify a conversation": partial(
                _each, lambda: [*map(_sound, verify(store, self._any()))]
            ),
            "rebuild the revisions of a conversation": partial(
                _each, lambda: Views(store).rebuild(self._any()), 10
            ),
        }

    def whole(self) -> dict[str, Callable[[], object]]:
        """Return the operations that read the whole store. Each operation runs once, and its figure
        is in µs for each event.
        """
        recorder = self._store.database.recorder
        return {
            "vacuum after the fill": lambda: recorder.compact(600),
            "first list": lambda: self._list(),
            "verify: the database itself": lambda: [*map(_refuse, recorder.check())],
            "erase a conversation": lambda: erase(self._store, name_of(0), reason="measured"),
            "vacuum again": lambda: recorder.compact(600),
        }

    def _list(self) -> None:
        page = recent_conversations(self._store.database, {}, limit=20, after=None, age_max_s=3_600)
        assert len(page.conversations) == 20

    def _follow(self) -> None:
        start = self._chance.choice(self._positions[:-1] or [0])
        assert len(list(self._store.follow(start, limit=1_000))) == 1_000

    def size(self) -> int:
        if self._store.path is not None:
            return Path(self._store.path).stat().st_size
        assert self._server is not None
        tables = (
            f"FROM pg_class WHERE relkind = 'r' AND relnamespace = '{self._schema}'::regnamespace"
        )
        return int(self._server.sql(f"SELECT sum(pg_total_relation_size(oid)) {tables}"))


def _each(work: Callable[[], object], times: int = _EACH) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times * 1e6


def _refuse(problem: str) -> None:
    raise AssertionError(problem)


def _sound(verdict: Verdict) -> None:
    for finding in verdict.findings:
        _refuse(str(finding))


@contextlib.contextmanager
def _opened(form: str, folder: Path, server: Server | None, conversations: int) -> Iterator[Asked]:
    schema = f"{form}_{conversations}"
    options = {"schema": schema, "durability": "full"}
    url = f"sqlite:///{folder}/{schema}.db" if server is None else server.url(**options)
    with open_store(url) as store:
        yield Asked(store, server, schema, conversations)


def measure(form: str, folder: Path, events: int) -> None:
    with contextlib.ExitStack() as held:
        server = None
        if form != "sqlite":
            settings = {
                "max_wal_size": "4GB",
                "shared_buffers": "1GB",
                "maintenance_work_mem": "256MB",
            }
            server = new_primary(folder / form, settings)
            held.callback(server.remove)
        sizes = [min(SMALL, events // 10) // LENGTH, events // LENGTH]
        stores = [held.enter_context(_opened(form, folder, server, size)) for size in sizes]
        _say(f"## {form}: {LENGTH * sizes[0]:,} and {LENGTH * sizes[1]:,} events")
        _say("\n| | small | large | |\n|---|---|---|---|")
        lengths = [LENGTH * size for size in sizes]
        _row(
            "fill, µs an event",
            *(1e6 * store.filled_s / count for store, count in zip(stores, lengths, strict=True)),
        )
        _row(
            "bytes an event",
            *(store.size() / count for store, count in zip(stores, lengths, strict=True)),
        )
        for what in stores[0].whole():
            took = [_each(store.whole()[what], 1) for store in stores]
            per = [1, 1] if what.startswith("erase") else lengths
            _row(f"{what}, s", *(microseconds / 1e6 for microseconds in took))
            _row(
                f"{what}, µs an event",
                *(microseconds / count for microseconds, count in zip(took, per, strict=True)),
            )
        if server is not None:
            server.sql("ANALYZE")  # as autovacuum does, which is off here
        for what in stores[0].questions():
            rounds = [[store.questions()[what]() for store in stores] for _ in range(_ROUNDS + 1)][
                1:
            ]
            _row(f"{what}, µs", *map(statistics.median, zip(*rounds, strict=True)))


def _row(what: str, small: float, large: float) -> None:
    _say(f"| {what} | {small:,.3g} | {large:,.3g} | {large / small:.2f} |")


def _say(line: str) -> None:
    print(line, flush=True)


@click.command()
@click.option(
    "--events",
    type=click.IntRange(min=LARGE_MIN),
    default=30_000_000,
    help="Number of events in the large store.",
)
@click.option("--form", "forms", multiple=True, type=click.Choice(FORMS), default=FORMS)
@click.option("--folder", type=Path, help="A folder with free space: 12 GB for 30 million events.")
def main(events: int, forms: Sequence[str], folder: Path | None) -> None:
    """Fill the stores, measure them, and print the figures."""
    for kind in forms:
        place = Path(tempfile.mkdtemp(prefix="foldlog-growth-", dir=folder))
        place.chmod(0o755)  # the server is another user
        try:
            measure(kind, place, events)
        finally:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
