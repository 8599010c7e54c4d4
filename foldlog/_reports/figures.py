"""The figures of one conversation for the home of the page: its overview, and what its condensations saved."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import asdict

from foldlog._reports.overview import overview_of
from foldlog._reports.savings import Saving, is_declined, saving_of, total_of
from foldlog._words.reasons import because
from foldlog.eventstore import CondensationAction, CondensationRequest, ConversationRow, Event, EventStoreError, Store
from foldlog.projections import Views

FIGURES = "figures", 2
"""Where figures are kept, and the version of what they hold and of how tokens are estimated: see ``KeptBeside``."""


def figures_of(
    store: Store, views: Views, row: ConversationRow, sizes: dict[int, int], count: Callable[[Event], int]
) -> tuple[dict[str, Any], dict[int, int]]:
    """Return the figures of one conversation, and the sizes of its Views before and after its condensations. ``sizes``
    are those that are known.

    Cost: its View, its structural events, and some events at its ends; all events, once, for condensations whose sizes
    are not known yet.
    """
    structural: list[Event] = []
    opened = 0.0
    began = time.perf_counter()
    try:
        views.current(row.id)
        opened = time.perf_counter() - began
        structural = store.query(row.id, lambda reading: list(reading.structural_events(0, row.version)))
        sizes = _sizes(views, row.id, structural, sizes, count)
    except EventStoreError:
        pass  # the overview names it as the problem
    condensed = _condensed(structural, sizes)
    found = {
        **asdict(total_of(saving for _, saving in condensed)),
        **overview_of(store, views, row, count)._asdict(),
        "open_ms": round(1_000 * opened, 2),
        "condensed": condensed,
    }
    return found, sizes


def _sizes(
    views: Views, conversation: str, structural: Iterable[Event], known: dict[int, int], count: Callable[[Event], int]
) -> dict[int, int]:
    """Return the tokens of the Views before and after each condensation."""
    made = [event for event in structural if isinstance(event, CondensationAction) and not is_declined(event)]
    if all(event.id + 1 in known for event in made):  # the View before it may be that after another one
        return known
    sizes = views.lifetimes(conversation, count).sizes
    return {version: sizes[version] for event in made for version in (event.id, event.id + 1)}


def _condensed(structural: Iterable[Event], sizes: Mapping[int, int]) -> list[tuple[str, Saving]]:
    """Return the reason of each condensation, and what it saved and cost."""
    condensed = []
    requests: list[CondensationRequest] = []
    for event in structural:
        if isinstance(event, CondensationRequest):
            requests.append(event)
        elif isinstance(event, CondensationAction):
            condensed.append((because(event, requests, brief=True) or "no reason given", saving_of(event, sizes)))
            requests = []
    return condensed
