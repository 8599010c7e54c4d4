"""Measure how fast the Views of your own conversations open and rebuild:
``python -m benchmarks.own [ID]... [--db STORE]``.

Each View is compared with the fold of its events. The exit status is 1 if a View differs.
"""

from __future__ import annotations

import argparse
import heapq
import statistics
import timeit
from collections.abc import Callable

from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.hints import default_db
from foldlog._app.cli.stores import open_existing
from foldlog.eventstore import Store
from foldlog.projections import View, Views

_LONGEST = 10
"""If you name no conversations, this number of the longest conversations is measured."""


def main() -> int:
    """Print a row for each conversation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.own", description=__doc__)
    parser.add_argument("--db", metavar="STORE", default=default_db())
    parser.add_argument("conversations", nargs="*", metavar="ID")
    parser.add_argument("--rounds", type=int, default=5, help="the median of these is shown")
    arguments = parser.parse_args()
    try:
        opened = open_existing(arguments.db)
    except Refused as error:
        parser.error(str(error))
    print(
        f"{'conversation':40} {'events':>8} {'View':>6} {'open ms':>9} {'past ms':>9}"
        f" {'rebuild ms':>12} {'faster':>8}"
    )
    agree = True
    with opened as store:
        for name in arguments.conversations or longest(store):
            agree &= measure(store, name, arguments.rounds)
    return 0 if agree else 1


def longest(store: Store) -> list[str]:
    """Return the names of the longest conversations, without erased conversations."""
    rows = (row for row in store.iter_conversations() if row.erased_at is None)
    return [row.id for row in heapq.nlargest(_LONGEST, rows, key=lambda row: row.version)]


def measure(store: Store, conversation: str, rounds: int) -> bool:
    """Print the row of a conversation. Return whether its View is the fold of its events."""
    version = store.version(conversation)
    view = Views(store).current(conversation)
    open_ms = _median_ms(lambda: Views(store).current(conversation).events, rounds)
    past_ms = _median_ms(lambda: Views(store).at(conversation, version // 2).events, rounds)
    rebuild_ms = _median_ms(lambda: View.from_events(store.events(conversation)), rounds)
    agrees = view == View.from_events(store.events(conversation, 0, view.version))
    differs = "" if agrees else "  DIFFERS from the fold of its events"
    print(
        f"{conversation:40} {version:8,} {len(view):6,} {open_ms:9.2f} {past_ms:9.2f}"
        f" {rebuild_ms:12.1f} {rebuild_ms / open_ms:7.1f}×{differs}"
    )
    return agrees


def _median_ms(work: Callable[[], object], rounds: int) -> float:
    return 1_000 * statistics.median(timeit.repeat(work, number=1, repeat=rounds))


if __name__ == "__main__":
    raise SystemExit(main())
