"""The condensers of this module hide or mask events at every step, or show everything. No event is
forgotten, and the log does not change.

A masked event keeps its id, its position and its call. A masked event is still the result of its
call, and can be forgotten by its id. The ``meta`` of a masked event has the key ``MASKED``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

from msgspec.structs import replace

from foldlog._base.json_types import JsonObject
from foldlog.condensers.base import AgentModel, Condenser, Step, setting
from foldlog.condensers.prompts.rendering import arguments_of
from foldlog.condensers.selection import ends, events_to_forget
from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import View
from foldlog.projections.call_states import in_doubt


class NoOpCondenser(Condenser):
    """Shows every event and forgets nothing."""

    type = "noop"

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        return Step(view)


@dataclass(frozen=True, eq=False)
class RecentEventsCondenser(Condenser):
    """Shows the first events and the most recent events.

    No event is forgotten, so the next step starts from the whole View again. A head that is larger
    than ``max_events`` is shown whole. If the head or the tail contains a part of a call or of a
    tool loop, the whole call or loop is shown. A call that may have run is always shown.
    """

    type = "recent_events"

    max_events: int = setting(100, "how many events are shown in all", ge=0, in_tables=1)
    keep_first: int = setting(1, "how many events at the head are always shown", ge=0)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        if len(view) <= self.max_events:
            return Step(view)
        doubts = set(in_doubt(view.events))
        positions = ends(view, self.keep_first, self.max_events - self.keep_first)
        positions |= {index for index, event in enumerate(view.events) if event.id in doubts}
        hidden = {event.id for event in events_to_forget(view, positions, with_summaries=True)}
        report: JsonObject = {"condenser": self.type, "rule": asdict(self), "hidden": len(hidden)}
        if kept_whole := len(view) - len(hidden) - len(positions):
            report["events_kept_whole"] = kept_whole
        shown = view
        if hidden:
            shown = view.with_events(event for event in view.events if event.id not in hidden)
        return Step(shown, (report,))


_MASK = ("content", "<MASKED>")
_BROWSER_TOOLS = ("browse", "browser")

MASKED = "masked_by"
"""The key of ``meta`` that marks a masked event. The value is the ``type`` of the masking
condenser.
"""


def is_masked(event: Event) -> bool:
    """Return whether a condenser masked the content of ``event``, an event of a View."""
    return MASKED in event.meta


@dataclass(frozen=True, eq=False)
class ObservationMaskingCondenser(Condenser):
    """Masks the content of each observation that is not among the newest events.

    With a window of 0, all observations are masked.
    """

    type = "observation_masking"

    attention_window: int = setting(
        5, "how many of the last events are shown in full", ge=0, in_tables=1
    )

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        older = view[: max(0, len(view) - self.attention_window)]
        masks = {
            index: _MASK for index, event in enumerate(older) if isinstance(event, Observation)
        }
        return mask_events(self, view, masks)


@dataclass(frozen=True, eq=False)
class BrowserOutputCondenser(Condenser):
    """Masks the content of all but the newest browser outputs. A masked output still shows the
    address of its page.
    """

    type = "browser_output"

    attention_window: int = setting(
        1, "how many of the last browser outputs are shown in full", ge=0, in_tables=1
    )

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        outputs = [
            (index, event) for index, event in enumerate(view.events) if is_browser_output(event)
        ]
        older = outputs[: max(0, len(outputs) - self.attention_window)]
        answers = view.units.answers if older else {}
        calls = {answer: view[call] for call, answer in answers.items()}
        masks = {
            index: ("content", f"{_describe_output(event, calls.get(index))}\nContent omitted")
            for index, event in older
        }
        return mask_events(self, view, masks)


def is_browser_output(event: Event) -> TypeGuard[Observation]:
    return isinstance(event, Observation) and event.tool.partition("_")[0] in _BROWSER_TOOLS


def _describe_output(output: Observation, call: Event | None) -> str:
    url = output.extras.get("url") or (
        arguments_of(call).get("url") if isinstance(call, Action) else None
    )
    return f"Visited URL {url}" if url else f"Output of {output.tool}"


def mask_events(condenser: Any, view: View, masks: Mapping[int, tuple[str, Any]]) -> Step:
    """Return a step with the View in which events are masked. ``masks`` maps the index of an event
    to the name of the masked field and the field's new value. Calls that may have run, and their
    results, are never masked, because a model must read them before it repeats a call.
    """
    doubts = frozenset(in_doubt(view.events)) if masks else frozenset()
    condenser_type = condenser.type
    kept_from = view.kept_from
    former_masks = view.state.items.masks
    masked_events: dict[int, Event] = {}
    for index, (field, value) in masks.items():
        event = view.events[index]
        if (kept_from is not None and event.id >= kept_from) or event.id in doubts:
            continue
        former = former_masks.get((condenser_type, event.id))
        if former is None or former[0] is not event or getattr(former[1], field) != value:
            mask = replace(event, **{field: value}, meta={**event.meta, MASKED: condenser_type})
            former = former_masks[condenser_type, event.id] = event, mask
        masked_events[index] = former[1]
    if not masked_events:
        return Step(view)
    report = {
        "condenser": condenser_type,
        "rule": asdict(condenser),
        "masked": len(masked_events),
        "newest_masked": view[max(masked_events)].id,
    }
    return Step(view.with_masks(masked_events), (report,))
