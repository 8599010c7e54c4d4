"""The savings and the recorded costs of condensations. Savings are measured by the Views before and
after a condensation.

A condensation may also record the tokens of its prompt. The sums do not include this number,
because tokens of a whole prompt cannot be compared with the sum of the tokens of single events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from foldlog._reports.answers.figures import SavingsDocument
from foldlog.condensers import Usage
from foldlog.eventstore import CondensationAction
from foldlog.eventstore.usage import cost_of
from foldlog.formats.event_places import is_declined
from foldlog.formats.model_calls import model_reports
from foldlog.formats.record import text_or_empty
from foldlog.projections.conversations.labels import label

_WITHOUT_A_MODEL = frozenset(("amortized_forgetting", "conversation_window", "digest"))
"""The strategies of foldlog that forget without calling a model."""


def is_made(event: CondensationAction) -> bool:
    """Return whether a condensation changed the View. An import may have one that was declined."""
    return label(event) == "condensation" and not is_declined(event)


def recorded_cost(event: CondensationAction) -> float | None:
    """Return the cost of the calls that a condensation reports, in US dollars. For a condensation
    without reports, return the cost in its metadata. Return None if the cost is unknown. A strategy
    without a model costs nothing.
    """
    reports = model_reports(event)
    metadata = event.metadata
    is_free = (
        event.origin is None
        and text_or_empty(metadata, "condenser") in _WITHOUT_A_MODEL
        and "model" not in metadata
    )
    cost: Any
    if reports:
        cost = Usage.of(reports).cost
    else:
        cost = metadata.get("cost", event.meta.get("cost", 0.0 if is_free else None))
    known = cost_of(cost) if isinstance(cost, int | float) else None
    return None if known is None else float(known)


def saving_of(
    event: CondensationAction, sizes: Sequence[int] | Mapping[int, int]
) -> SavingsDocument:
    """Return the cost of a condensation, and the tokens that it saved. ``sizes`` has the tokens of
    the View at each version, or only of the Views before and after the condensation.
    """
    cost = recorded_cost(event)
    saving = SavingsDocument(tokens_saved=0, cost=cost)
    if not is_made(event):
        return saving
    if isinstance(sizes, Mapping):
        is_counted = event.id in sizes
    else:
        is_counted = event.id + 1 < len(sizes)
    saved = sizes[event.id] - sizes[event.id + 1] if is_counted else None
    return replace(saving, condensations=1, tokens_saved=saved)
