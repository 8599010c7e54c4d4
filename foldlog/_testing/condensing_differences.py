"""Say in words that a program condensed elsewhere than the recorded run, because its condenser has
other limits. A request does not name them, but the digest in its prompt says what was forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from foldlog._base.values import texts_in
from foldlog._reports.words.gist import count
from foldlog._reports.words.reasons import because
from foldlog.condensers.strategies.digest.fold import TITLE
from foldlog.eventstore import CondensationAction, Event

_TITLE = re.compile(rf"{TITLE}(\d+) events, up to \[(\d+)(?:-\d+)?\]")


class _Extent(NamedTuple):
    """How many events a digest is of, and the newest of them."""

    events: int
    newest: int

    def __str__(self) -> str:
        return f"a digest of {count(self.events, 'event')}, up to [{self.newest}]"


def condensing_difference(
    recorded: Iterable[Any], asked: Iterable[Any], events: Iterable[Event], version: int
) -> str | None:
    """Return how the condensations before a call differ, or None. ``recorded`` and ``asked`` are
    the messages of both prompts, ``events`` the events of the run, and ``version`` the version of
    its View at this call.
    """
    ours = _extent(recorded)
    theirs = _extent(asked)
    if ours == theirs:
        return None
    condensations = [event for event in events if isinstance(event, CondensationAction)]
    earlier = [event for event in condensations if event.id < version]
    if theirs is None:
        return (
            f"the prompt has no digest, and the run {ours}: the program's condenser has a higher"
            f" limit than the run's{_cause(earlier[-1:])}, or another type"
        )
    if ours is not None:
        return (
            f"the prompt has {theirs}, and the run {ours}: the program's condenser has another"
            f" max_size, max_tokens or keep_first than the run's{_cause(earlier[-1:])}"
        )
    if earlier:
        return (
            f"the prompt has {theirs}, and the run a condensation without a digest: the program's"
            f" condenser has another type than the run's{_cause(earlier[-1:])}"
        )
    return (
        f"the prompt has {theirs}, and the run had condensed nothing yet: the program's condenser"
        f" has a lower limit than the run's{_cause(condensations[:1])}, or was asked to condense"
    )


def _extent(messages: Iterable[Any]) -> _Extent | None:
    """Return the extent of the first digest in messages, or None."""
    for text in texts_in([*messages]):
        if match := _TITLE.search(text):
            return _Extent(int(match[1]), int(match[2]))
    return None


def _cause(condensations: Sequence[CondensationAction]) -> str:
    """Return why the run condensed. There is one condensation, or none."""
    if not condensations:
        return ", which never condensed"
    [condensation] = condensations
    return f" (event {condensation.id}: {because(condensation)})"
