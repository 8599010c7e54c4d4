"""``foldlog vacuum``: give back the space of what was deleted."""

from __future__ import annotations

from foldlog.cli import terminal
from foldlog.cli.options import DEFAULT_DB, AsJson, Db
from foldlog.cli.outcome import DONE
from foldlog.cli.stores import open_existing

__all__ = ["run"]


def run(db: Db = DEFAULT_DB, as_json: AsJson = False) -> int:
    """Give the space of erased histories back, and clear away what imports left that were killed.

    Events keep their ids and positions. Others can read meanwhile; those who write wait until it is done, and it needs
    as much free space again as the store takes.
    """
    from foldlog.cli.gist import count

    with open_existing(db) as store:
        done = store.vacuum()
    if as_json:
        terminal.emit(
            {
                "imports_discarded": done.discarded,
                "bytes_before": done.bytes_before,
                "bytes_after": done.bytes_after,
            }
        )
    else:
        left = f"; what {count(done.discarded, 'import')} left is cleared away" if done.discarded else ""
        terminal.console().print(f"{done.bytes_before:,} bytes before, {done.bytes_after:,} now{left}")
    return DONE
