"""The histories that an adapter was given: the URL of a store, or histories that are open."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import cached_property, partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from foldlog import aio
from foldlog._histories import Histories
from foldlog._histories import open as open_histories
from foldlog._history import History
from foldlog.eventstore import ConversationErased, VersionConflict

P = ParamSpec("P")
T = TypeVar("T")

HistoriesGiven = aio.AsyncHistories | Histories | str
"""The argument of an adapter: open histories of either face, or a URL such as ``sqlite:///history.db``."""


def append_or_begin(histories: Histories, history: History, append: Callable[[History], T]) -> tuple[History, T]:
    """Append to a history. If its conversation was erased before this ``history`` found it, begin another one with its
    id. Return the history that was appended to.

    Raises ``ConversationErased`` if ``history`` wrote to the erased conversation, or read it.
    """
    try:
        return history, append(history)
    except ConversationErased:
        if history._generation.key is not None:
            raise
    try:
        history = histories.create(history.id, replace_erased=True)
    except VersionConflict:
        history = histories[history.id]  # another writer began it
    return history, append(history)


class _Given:
    """The async face of the histories that an adapter was given. ``async with`` closes what was opened by its URL.

    Raises what ``foldlog.open`` raises.
    """

    def __init__(self, given: HistoriesGiven) -> None:
        self._owned = not isinstance(given, aio.AsyncHistories | Histories)
        if isinstance(given, aio.AsyncHistories):
            self.histories, self._sync = given, given.sync
        else:
            self._sync = given if isinstance(given, Histories) else open_histories(given)

    @cached_property
    def histories(self) -> aio.AsyncHistories:
        """The async face of the histories."""
        return aio.face_of(self._sync)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._owned:
            await self.histories.close()


class OpenHistories(_Given):
    """The histories of an async adapter."""

    async def close(self) -> None:
        """Close the store, if it was opened by its URL."""
        await self.__aexit__()


class WithHistories(_Given):
    """The histories of an adapter with both faces."""

    def close(self) -> None:
        """Close the store, if it was opened by its URL."""
        if self._owned:
            self._sync.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def in_thread(
    method: Callable[Concatenate[Any, P], T], *, finish: bool = False
) -> Callable[..., Coroutine[Any, Any, T]]:
    """Return the async form of a method of an adapter, with the same arguments: it runs in a thread of ``histories``.

    With ``finish``, a cancelled call still runs to its end, and its caller waits for it.
    """

    @wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        histories: aio.AsyncHistories = self.histories
        return await histories.pool.run(partial(method, self, *args, **kwargs), finish=finish)

    return call
