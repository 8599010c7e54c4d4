"""Measure what a growing store costs: ``python -m benchmarks.growth URL [--events N]``.

URL names a new SQLite file or a new schema of a PostgreSQL server. The benchmark adds conversations
of 300 short events, and measures the same operations at a hundredth, at a tenth and at all of the
events.
"""

from __future__ import annotations

import random
import statistics
import timeit
from collections.abc import Callable

import click

import foldlog
from foldlog.eventstore import CondensationAction, Event, Message

LENGTH = 300
"""The number of events of a conversation."""
LISTED = 20
_CALLS = 200
_MESSAGE = Message(source="user", content="What is the name of the module that fails?")


def fill(url: str, first: int, end: int) -> None:
    """Add the conversations with the numbers from ``first`` to before ``end``. Each conversation
    ends with a condensation, which leaves 30 events.
    """
    messages: list[Event] = [_MESSAGE] * (LENGTH - 1)
    forgetting = CondensationAction(forgotten_event_ids=tuple(range(10, LENGTH - 20)))
    with foldlog.open(url, durability="relaxed") as histories:
        for number in range(first, end):
            histories[f"c{number}"].append([*messages, forgetting], expected_version=0)


def measure(histories: foldlog.Histories, conversations: int) -> list[float]:
    """Return the median µs of an append, of a View, of a past View and of a list."""
    chance = random.Random(conversations)

    def any_history() -> foldlog.History:
        return histories[f"c{chance.randrange(conversations)}"]

    operations: list[Callable[[], object]] = [
        lambda: any_history().append(_MESSAGE),
        lambda: any_history().view(),
        lambda: any_history().at(LENGTH // 2),
        lambda: histories.list(limit=LISTED),
    ]
    return [
        1e6 * statistics.median(timeit.repeat(operation, number=1, repeat=_CALLS))
        for operation in operations
    ]


@click.command()
@click.argument("url")
@click.option("--events", type=click.IntRange(min=100 * LENGTH), default=3_000_000)
def main(url: str, events: int) -> None:
    """Fill the new store at URL, and print the µs of each operation as the store grows."""
    print(f"| events | append | View | past View | list of {LISTED} |\n|---:|---:|---:|---:|---:|")
    filled = 0
    for part in (100, 10, 1):
        conversations = events // LENGTH // part
        fill(url, filled, conversations)
        filled = conversations
        with foldlog.open(url) as histories:
            figures = measure(histories, conversations)
        cells = [conversations * LENGTH, *figures]
        print(f"| {' | '.join(f'{cell:,.0f}' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
