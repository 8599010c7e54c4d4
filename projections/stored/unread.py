"""A View of a stored conversation that is read on first use. Its tail costs only the tail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from eventstore.events import CondensationAction, Event
from projections.fold import ViewState
from projections.messages import Dialect
from projections.view import View

if TYPE_CHECKING:
    from projections.views import Views


class UnreadView(View):
    """The View of a conversation at a version. ``tail`` reads only the last events; every other use reads the whole
    View, once.

    It equals the View that is read at once, whatever is appended since. Reading raises what ``Views.at`` raises.
    """

    def __init__(self, views: Views, conversation: str, version: int, dialect: Dialect) -> None:
        values = vars(self)  # a View is frozen: only this fills it
        values["_views"], values["_conversation"], values["_version"] = views, conversation, version
        values["dialect"] = dialect

    @cached_property
    def whole(self) -> View:
        """The same View, read."""
        view: View = self._views.at(self._conversation, self._version)
        return view

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
        return self._views.tail(self._conversation, count, version=self._version)[1]

    _views: Views
    _conversation: str
    _version: int
