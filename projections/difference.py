"""What changed between two Views of one conversation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eventstore.events import CondensationAction, CondensationSummary, Event
from projections.fold import summary_event
from projections.forgetting import forgetting
from projections.view import View

__all__ = ["Difference", "Summarized", "difference"]


@dataclass(frozen=True, slots=True)
class Summarized:
    """Events that a condensation took out of the View, and the summary that it put in their place. That may be gone
    again since.
    """

    condensation: CondensationAction
    summary: CondensationSummary
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """``entered`` are shown by the later View only, ``left`` by the earlier one only, each in the order of its View.
    ``summarized`` says of those that left which have a summary, oldest condensation first.
    """

    before: int
    after: int
    entered: tuple[Event, ...]
    left: tuple[Event, ...]
    summarized: tuple[Summarized, ...]


def difference(before: View, after: View, structural: Iterable[Event]) -> Difference:
    """What changed from one View to another, with the structural events between them.

    Cost: both Views, and for each structural event what of the first View is left.
    """
    ids_before, ids_after = ({event.id for event in view} for view in (before, after))
    left = tuple(event for event in before if event.id not in ids_after)
    summarized: list[Summarized] = []
    remaining = left
    for action in structural:
        forgets = forgetting(action)
        taken = tuple(event for event in remaining if forgets(event))
        if taken:
            remaining = tuple(event for event in remaining if not forgets(event))
            if isinstance(action, CondensationAction) and action.summary is not None:
                summarized.append(Summarized(action, summary_event(action), taken))
    return Difference(
        before=before.version,
        after=after.version,
        entered=tuple(event for event in after if event.id not in ids_before),
        left=left,
        summarized=tuple(summarized),
    )
