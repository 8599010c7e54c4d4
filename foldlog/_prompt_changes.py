"""Decide what a change of the prompt is: *the prompt was A, it is now B, because C*.
docs/MESSAGES.md has the rules.

Formats and adapters report what a source says of its prompts, and decide nothing themselves. A
source that names the moment to which it returns, as a tree of messages does, needs no decision:
that is a retraction to this moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from foldlog.eventstore import CondensationAction, Retraction

Cause = Literal["compaction", "return", "system prompt"]
"""What a source says of a change: that it compacted, that it went back to an earlier moment, or
that its system prompt is another one.
"""

PROMPT_REPLACED = {"outcome": "replaced", "reason": "the system prompt was updated"}
"""The metadata of a condensation that forgets a system prompt because the next event has a newer
one.
"""


def change_of_prompt(
    before: Sequence[int],
    after: Sequence[int | str],
    because: Cause | None = None,
    *,
    condensed_at: int = -1,
    metadata: dict[str, Any] | None = None,
) -> CondensationAction | Retraction | None:
    """Return the event after which a View that showed ``before`` shows ``after``; None where that
    is the same.

    ``before``        the ids of the events and summaries in the prompt, in order
    ``after``         the ids of those that stay, in order, and a new summary as a text in its
                      place. What else is new
                      in the prompt comes behind them, by later events
    ``because``       what the source says of the change; None where it says nothing
    ``condensed_at``  the id of the newest condensation before: a retraction must not take that back
    ``metadata``      what is known of the change; of a retraction only the ``reason`` is recorded
    """
    staying = set(after)
    gone = tuple(event_id for event_id in before if event_id not in staying)
    place, summary = next(
        ((place, each) for place, each in enumerate(after) if isinstance(each, str)), (None, None)
    )
    known = metadata or {}
    if not gone and summary is None:
        return None
    if because == "system prompt":
        known = {**PROMPT_REPLACED, **known}
    elif because != "compaction" and summary is None and _is_end(gone, before, condensed_at):
        return Retraction(version=gone[0], reason=str(known.get("reason", "")))
    told: dict[str, Any] = {} if summary is None else {"summary": summary, "summary_offset": place}
    return CondensationAction(forgotten_event_ids=gone, metadata=known, **told)


def _is_end(gone: tuple[int, ...], before: Sequence[int], condensed_at: int) -> bool:
    """Return whether a View before the first of these showed just what stays: they are the last,
    and none is older than a condensation or stands for older events.
    """
    return gone == tuple(before[len(before) - len(gone) :]) and min(gone) > condensed_at


def staying(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Return the places of the entries of an old prompt that stay, in order: they are the first
    ones of the new.
    """
    places: list[int] = []
    for place, entry in enumerate(old):
        if len(places) < len(new) and new[len(places)] == entry:
            places.append(place)
    return places
