"""Masks: old, bulky observations are shown as a line. Nothing is forgotten, and the log knows nothing of it.

A masked event keeps its id, its place and its call, so that it still answers, can still be forgotten by its id, and is
never taken for a summary. It is marked in ``meta`` under ``MASKED``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from msgspec.structs import replace

from condensers.base import AgentModel, Condenser, Step
from condensers.errors import InvalidCondenser
from eventstore.events import Action, Event, Observation
from projections import View

__all__ = ["MASKED", "BrowserOutputCondenser", "ObservationMaskingCondenser", "is_masked"]

MASKED = "masked_by"
"""The key in a masked event's ``meta``; its value is the ``type`` of the condenser that masked it."""

_BROWSER_TOOLS = ("browse", "browser")


def is_masked(event: Event) -> bool:
    """Whether this event stands in a View with its content masked."""
    return MASKED in event.meta


class ObservationMaskingCondenser(Condenser):
    """Masks every observation but those among the last ``attention_window`` events. 0 masks them all."""

    type = "observation_masking"

    def __init__(self, attention_window: int = 5) -> None:
        self.attention_window = _checked(attention_window)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        older = view[: max(0, len(view) - self.attention_window)]
        masks = {index: "<MASKED>" for index, event in enumerate(older) if isinstance(event, Observation)}
        return _masked(view, masks, self.type, self.attention_window)


class BrowserOutputCondenser(Condenser):
    """Masks what the browser gave, but for the newest ``attention_window`` of such outputs. The address stays."""

    type = "browser_output_masking"

    def __init__(self, attention_window: int = 1) -> None:
        self.attention_window = _checked(attention_window)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        outputs = [(index, event) for index, event in enumerate(view.events) if _is_browser_output(event)]
        older = outputs[: max(0, len(outputs) - self.attention_window)]
        urls = _called_urls(view) if older else {}
        masks = {index: f"{_where(event, urls)}\nContent omitted" for index, event in older}
        return _masked(view, masks, self.type, self.attention_window)


def _checked(attention_window: int) -> int:
    if attention_window < 0:
        raise InvalidCondenser(f"attention_window ({attention_window}) cannot be negative; 0 masks everything")
    return attention_window


def _masked(view: View, masks: Mapping[int, str], by: str, attention_window: int) -> Step:
    """``view`` with the contents at these indices replaced, and a report of which events that are."""
    if not masks:
        return Step(view)
    events = list(view.events)
    for index, content in masks.items():
        event = events[index]
        events[index] = replace(event, content=content, meta={**event.meta, MASKED: by})
    report = {
        "condenser": by,
        "rule": {"attention_window": attention_window},
        "masked": len(masks),
        "newest_masked": max(events[index].id for index in masks),
    }
    return Step(view.with_events(events), (report,))


def _is_browser_output(event: Event) -> TypeGuard[Observation]:
    return isinstance(event, Observation) and event.tool.partition("_")[0] in _BROWSER_TOOLS


def _where(output: Observation, urls: Mapping[object, object]) -> str:
    """What an output was of: the address it names itself, or its call does, else the tool."""
    url = output.extras.get("url") or urls.get(output.cause) or urls.get(output.call_id)
    return f"Visited URL {url}" if url else f"Output of {output.tool}"


def _called_urls(view: View) -> dict[object, object]:
    """The addresses that calls name, by the id of the call and of its event."""
    urls: dict[object, object] = {}
    for event in view.events:
        if isinstance(event, Action) and isinstance(event.arguments, dict) and event.arguments.get("url"):
            urls[event.id] = event.arguments["url"]
            if event.call_id is not None:
                urls.setdefault(event.call_id, event.arguments["url"])
    return urls
