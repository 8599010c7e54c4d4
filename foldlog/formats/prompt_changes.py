"""Decide which event stores a change of a prompt. ``docs/MESSAGES.md`` has the rules.

Formats and adapters only report how the prompt of a source changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import CondensationAction, Retraction

Cause = Literal["compaction", "return", "system prompt"]
"""Why the prompt changed, if the source says so: a compaction, a return to an earlier message, or a
new system prompt.
"""

PROMPT_REPLACED = {"outcome": "replaced", "reason": "the system prompt was updated"}
"""The metadata of a condensation that forgets a replaced system prompt."""


def change_of_prompt(
    before: Sequence[int],
    after: Sequence[int | str],
    because: Cause | None = None,
    *,
    condensed_at: int = -1,
    metadata: JsonObject | None = None,
) -> CondensationAction | Retraction | None:
    """Return the event that changes the View, or None if the View does not change.

    Args:
        before: The ids of the events and summaries in the prompt, in order.
        after: The ids of the events that stay, and the text of a new summary, in order. The caller
            appends other new events.
        because: The cause that the source names, or None.
        condensed_at: The id of the last condensation, which a retraction must not undo.
        metadata: Metadata of the change. A retraction stores only its ``reason``.

    Returns:
        A condensation; or a retraction, if the prompt goes back to an earlier message; or None.
    """
    staying = set(after)
    forgotten_ids = tuple(event_id for event_id in before if event_id not in staying)
    place, summary = next(
        ((place, member) for place, member in enumerate(after) if isinstance(member, str)),
        (None, None),
    )
    fields = metadata or {}
    if not forgotten_ids and summary is None:
        return None
    is_end = bool(forgotten_ids) and _is_end(forgotten_ids, before, condensed_at)
    if because == "system prompt":
        fields = {**PROMPT_REPLACED, **fields}
    elif because != "compaction" and summary is None and is_end:
        return Retraction(version=forgotten_ids[0], reason=str(fields.get("reason", "")))
    summary_fields: JsonObject = {}
    if summary is not None:
        summary_fields = {"summary": summary, "summary_offset": place}
    return CondensationAction(forgotten_event_ids=forgotten_ids, metadata=fields, **summary_fields)


def _is_end(forgotten_ids: tuple[int, ...], before: Sequence[int], condensed_at: int) -> bool:
    """Return whether a retraction can remove exactly the events ``forgotten_ids`` from ``before``.

    A retraction can only remove the last events of ``before``, and only events that are newer than
    the newest condensation.
    """
    return (
        forgotten_ids == tuple(before[len(before) - len(forgotten_ids) :])
        and min(forgotten_ids) > condensed_at
    )


def staying(old: Sequence[Any], new: Sequence[Any]) -> list[int]:
    """Find the entries of ``old`` that ``new`` repeats at its beginning, and return their indexes
    in ``old``. Entries of ``old`` that ``new`` does not repeat are skipped.
    """
    places: list[int] = []
    for place, entry in enumerate(old):
        if len(places) < len(new) and new[len(places)] == entry:
            places.append(place)
    return places
