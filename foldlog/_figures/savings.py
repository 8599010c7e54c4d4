"""Find what condensations saved, by the Views before and after them, and what they recorded as
their cost.

Tokens that a condensation recorded itself are of another measure: of a whole prompt, counted in its
own way. They stay with the condensation and enter no sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec.structs import replace

from foldlog._documents import SavingsDocument
from foldlog._formats.places import is_declined
from foldlog._labels import label
from foldlog.condensers import Usage, on_a_model, reports_of
from foldlog.eventstore import CondensationAction

_WITHOUT_A_MODEL = frozenset(("amortized_forgetting", "conversation_window", "digest"))
"""The strategies of ours that forget, and ask no model."""


def is_made(event: CondensationAction) -> bool:
    """Return whether a condensation condensed: it is not declined, and one by its ``label`` too."""
    return label(event) == "condensation" and not is_declined(event)


def recorded_cost(event: CondensationAction) -> float | None:
    """Return the cost of the calls that a condensation reports, or else names itself; None if it is
    not known. A strategy without a model costs nothing.
    """
    asked = on_a_model(reports_of(event))
    told = event.metadata
    if event.origin is None and told.get("condenser") in _WITHOUT_A_MODEL and "model" not in told:
        free = 0.0
    else:
        free = None
    cost: Any = Usage.of(asked).cost if asked else told.get("cost", event.meta.get("cost", free))
    known = isinstance(cost, int | float) and not isinstance(cost, bool) and isfinite(cost)
    return float(cost) if known else None


def saving_of(
    event: CondensationAction, sizes: Sequence[int] | Mapping[int, int] = ()
) -> SavingsDocument:
    """Return what a condensation saved and cost; a declined one saved nothing. ``sizes`` are the
    tokens of the View of each version, or at least of the versions before and after it: see
    ``Lifetimes.sizes``.
    """
    cost = recorded_cost(event)
    known = SavingsDocument(tokens_saved=0, cost=cost)
    if not is_made(event):
        return known
    if isinstance(sizes, Mapping):
        is_counted = event.id in sizes
    else:
        is_counted = event.id + 1 < len(sizes)
    saved = sizes[event.id] - sizes[event.id + 1] if is_counted else None
    return replace(known, condensations=1, tokens_saved=saved)
