"""The histories that an adapter was given: the URL of a store, or histories that are open."""

from __future__ import annotations

from foldlog import aio
from foldlog.histories import Histories
from foldlog.histories import open as open_histories

__all__ = ["HistoriesGiven", "histories_of"]

HistoriesGiven = aio.AsyncHistories | Histories | str
"""What an adapter takes: open histories of either face, or a URL such as ``sqlite:///history.db``."""


def histories_of(given: HistoriesGiven) -> tuple[aio.AsyncHistories, bool]:
    """Return the async face of the histories, and whether they were opened here, so that the adapter closes them.

    Raises what ``foldlog.open`` raises.
    """
    if isinstance(given, aio.AsyncHistories):
        return given, False
    if isinstance(given, Histories):
        return aio.face_of(given), False
    return aio.face_of(open_histories(given)), True
