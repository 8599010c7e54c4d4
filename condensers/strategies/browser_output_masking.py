"""Mask the contents of old browser outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from foldlog.condensers.base import AgentModel, ReportingCondenser, Step, setting
from foldlog.condensers.strategies.masking import check_window, masked
from foldlog.eventstore import Action, Event, Observation
from foldlog.projections import View

_BROWSER_TOOLS = ("browse", "browser")


@dataclass(frozen=True, eq=False)
class BrowserOutputCondenser(ReportingCondenser):
    """Masks the content of all but the newest outputs of a browser. Keeps the address."""

    type = "browser_output_masking"

    attention_window: int = setting(1, "how many of the last browser outputs are shown in full", ge=1)

    def __post_init__(self) -> None:
        check_window(self.attention_window)

    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step:
        outputs = [(index, event) for index, event in enumerate(view.events) if _is_browser_output(event)]
        older = outputs[: max(0, len(outputs) - self.attention_window)]
        urls = _called_urls(view) if older else {}
        masks = {index: f"{_where(event, urls)}\nContent omitted" for index, event in older}
        return masked(view, masks, self.type, self.attention_window)


def _is_browser_output(event: Event) -> TypeGuard[Observation]:
    return isinstance(event, Observation) and event.tool.partition("_")[0] in _BROWSER_TOOLS


def _where(output: Observation, urls: Mapping[object, object]) -> str:
    """Return a line about an output: the address that it or its call names, else the tool."""
    url = output.extras.get("url") or urls.get(output.cause) or urls.get(output.call_id)
    return f"Visited URL {url}" if url else f"Output of {output.tool}"


def _called_urls(view: View) -> dict[object, object]:
    """Return the addresses that calls name, by the id of the call and of its event."""
    urls: dict[object, object] = {}
    for event in view.events:
        if isinstance(event, Action) and isinstance(event.arguments, dict) and event.arguments.get("url"):
            urls[event.id] = event.arguments["url"]
            if event.call_id is not None:
                urls.setdefault(event.call_id, event.arguments["url"])
    return urls
