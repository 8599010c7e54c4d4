"""Choose what goes over to another program: the events of a View, and what its model must know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.formats.blocks import texts_of
from foldlog.projections import View

SUMMARY = "[Summary of earlier events of this conversation, which are not shown.]"
"""The first line of a summary, because no format of a session marks a summary that stands among
other messages.
"""
HANDED_OVER = "handed_over"
"""The key in ``Message.meta`` of the note, which says what was handed over."""
_OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: it was under way when the conversation moved to another"
    " program. Check what it did before you rely on it or repeat it."
)
_OWN_CONTEXT = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|skills_instructions|permissions|"
    r"system-reminder|session_context|turn_aborted|INSTRUCTIONS)\b|# AGENTS\.md|# Environment\b)"
)
"""Matches what a program tells its model about itself and its surroundings."""
_TOOLS_MAX = 20


class GoingOver(NamedTuple):
    """What goes over to another program.

    ``view``       the View of the fork, with the events that are sent. Marked summaries are only
                   in this View
    ``events``     the events that the fork gets first
    ``left_out``   how many events were left out, by kind
    """

    view: View
    events: tuple[Event, ...]
    left_out: dict[str, int]


def choose(view: View, program: str) -> GoingOver:
    """Choose what goes over to ``program``.

    The target has a system prompt of its own, so the View of the fork loses the system prompt and
    the context of the former program. Each open call gets a result. A note tells the model that the
    program changed.
    """
    left_out = dict[str, int]()
    forgotten = list[int]()
    for event in view.events:
        kind = _kind_left_out(event)
        if kind:
            left_out[kind] = left_out.get(kind, 0) + 1
            forgotten.append(event.id)
    events: list[Event] = [_unknown_outcome(call) for call in view.open_calls]
    if forgotten:
        reason = f"the conversation went on in {program}, which has a system prompt of its own"
        events.append(
            CondensationAction(
                forgotten_event_ids=tuple(forgotten),
                metadata={"outcome": "replaced", "reason": reason},
            )
        )
    events.append(Message(content=_note(view, program), source="environment"))
    events = [replace(event, id=view.version + place) for place, event in enumerate(events)]
    return GoingOver(view.then(events), tuple(events), left_out)


def with_marked_summaries(view: View) -> View:
    return view.with_events([_marked(event) for event in view.events])


def _marked(event: Event) -> Event:
    summary: Any = event
    if isinstance(summary, CondensationSummary):
        return replace(summary, content=f"{SUMMARY}\n{summary.content}")
    return event


def _kind_left_out(event: Event) -> str:
    if isinstance(event, SystemMessage):
        return "system prompt"
    if isinstance(event, Message) and event.source == "environment":
        return "context of the program" if _is_own_context(event.content) else ""
    return ""


def _is_own_context(content: Content) -> bool:
    texts = texts_of(content)
    return bool(texts) and _OWN_CONTEXT.match(texts[0]) is not None


def _unknown_outcome(call: Action) -> Observation:
    return Observation(
        content=_OUTCOME_UNKNOWN,
        tool=call.tool,
        call_id=call.call_id,
        cause=call.id,
        is_error=True,
    )


def _note(view: View, program: str) -> str:
    former = next(_formats(view), "another program")
    tools = sorted({event.tool for event in view.events if isinstance(event, Action)})
    named = ", ".join(tools[:_TOOLS_MAX]) + (", …" if len(tools) > _TOOLS_MAX else "")
    note = f"[foldlog] Up to here, this conversation ran in {former}. It goes on in {program}."
    if tools:
        note += (
            f" The calls above are of tools of the former program ({named}): use only the tools"
            " that you have now."
        )
    return f"{note} Files may have changed since."


def _formats(view: View) -> Iterator[str]:
    for event in reversed(view.events):
        if event.origin is not None and not isinstance(event, Annotation):
            yield event.origin.format
