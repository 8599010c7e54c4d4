"""A View of a stored conversation that is read on first use. Its tail costs only the tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from foldlog.eventstore import CondensationAction, Event
from foldlog.projections.fold import ViewState
from foldlog.projections.messages import Dialect
from foldlog.projections.view import View


class UnreadView(View):
    """The View of a conversation at a version. ``tail`` reads only the last events; every other use reads the whole
    View, once.

    It equals the View that is read at once, whatever is appended since. Reading raises what ``Views.at`` raises.
    """

    _version: int
    _read: Callable[[], View]
    _read_tail: Callable[[int], tuple[Event, ...]]

    def __init__(
        self,
        version: int,
        dialect: Dialect,
        read: Callable[[], View],
        read_tail: Callable[[int], tuple[Event, ...]],
    ) -> None:
        # a View is frozen: only this fills it
        vars(self).update(_version=version, dialect=dialect, _read=read, _read_tail=read_tail)

    @cached_property
    def whole(self) -> View:
        """The same View, read."""
        return self._read()

    @property
    def state(self) -> ViewState:
        return self.whole.state

    @property
    def condensations(self) -> Sequence[CondensationAction]:
        return self.whole.condensations

    @property
    def version(self) -> int:
        return self._version

    def tail(self, count: int) -> tuple[Event, ...]:
        if "whole" in vars(self):
            return self.whole.tail(count)
        return self._read_tail(count)
