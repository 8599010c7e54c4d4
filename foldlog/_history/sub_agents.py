"""Sub-agents: conversations that a call of another conversation began.

The parent's log has an annotation ``sub_agent`` with the id of the conversation, whose cause is the
call. The attributes of the new conversation name the parent and the call. The annotation is written
first: a sub-agent never exists without it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap
from foldlog._history.effects import check_call, closing_observations, effects, in_doubt_words
from foldlog._reports.figures.overview import PARENT, PARENT_CALL, SUB_AGENT, begun_in, parent_in
from foldlog.eventstore import (
    Action,
    Annotation,
    ConversationErased,
    InvalidArgument,
    InvalidEvent,
    Observation,
    VersionConflict,
)
from foldlog.projections.tool_results import why_no_result

if TYPE_CHECKING:
    from foldlog._history.log import HistoryLog


class SubAgent(NamedTuple):
    """A sub-agent, the id of its parent, and the id of the call that began it. ``is_interrupted``
    is true if the call is among the calls that are being closed.
    """

    history: HistoryLog
    parent: str
    call_id: int
    is_interrupted: bool


def begin_child(
    parent: HistoryLog, call: Action, id: str | None, attributes: JsonMap
) -> HistoryLog:
    """Begin the history of a sub-agent: see ``History.begin_child``."""
    check_call("begin_child", call)
    histories = parent._histories
    child = histories[id or f"{parent.id}/agent-{call.id}"]
    link = {PARENT: parent.id, PARENT_CALL: call.call_id or str(call.id)}
    key = f"{SUB_AGENT} {child.id}"
    if not child.version():  # an erased id is refused before anything is written
        if all(call.id != open_call.id for open_call in parent.open_calls()):
            raise InvalidEvent(why_no_result(parent.id, call, parent.view()))
        begun = Annotation(name=SUB_AGENT, data={"conversation": child.id}, cause=call.id)
        parent.append(begun, idempotency_key=key)
        with suppress(VersionConflict):  # another worker may be first
            return histories.create(child.id, {**attributes, **link})
    # The sub-agent of an erased history with the parent's id has the same link.
    if not link.items() <= child.attributes().items() or not parent.recorded(key):
        raise InvalidArgument(
            f"conversation {child.id!r} exists, and call {call.id} of {parent.id!r} did not begin"
            " it; use another id"
        )
    return child


def begun_by(history: HistoryLog, start: int = 0) -> Iterator[tuple[int, HistoryLog]]:
    """Yield the sub-agents that calls from the event ``start`` on began, each with the id of its
    call. A fork shares the events of its parent, but not the sub-agents that they began. Cost: the
    function reads the events from ``start`` on, and the attributes of the sub-agents.
    """
    for event in history.events(start):
        child_id = begun_in(event)
        if child_id is not None and event.cause is not None:
            child = history._histories[child_id]
            with suppress(ConversationErased):
                # The sub-agent has no attributes if its worker died before it began.
                if parent_in(child.attributes()) == history.id:
                    yield event.cause, child


def close_below(history: HistoryLog, reason: str, calls: Sequence[Action]) -> list[Observation]:
    """Close the open calls of the sub-agents that ``calls`` began, the innermost first. Return the
    observations that close ``calls``, with the calls that may have run in their sub-agents. Cost:
    the function reads each sub-agent once, at any depth.
    """
    doubts = defaultdict[str, dict[int, str]](dict)
    for agent, parent, call_id, is_interrupted in reversed(_agents_below(history, calls)):
        if is_interrupted:
            agent._close_calls(partial(_answers, agent, reason, doubts[agent.id]))
        # The log is read, because a closing that was interrupted is repeated.
        own = "".join(
            f"\nin {agent.id}, {in_doubt_words(effect.call, effect.key)}"
            for effect in effects(agent, "unknown")
        )
        below = "".join(reversed(doubts[agent.id].values()))
        doubts[parent][call_id] = f"{own}{below}{doubts[parent].get(call_id, '')}"
    return _answers(history, reason, doubts[history.id], calls)


def _agents_below(history: HistoryLog, calls: Sequence[Action]) -> list[SubAgent]:
    """Return the sub-agents that ``calls`` began, and all sub-agents below, each after its
    parent.
    """
    agents = list[SubAgent]()
    seen = {history.id}
    to_read = [(history, {call.id for call in calls})]
    for parent, closed_ids in to_read:  # the list grows
        start = min(closed_ids) if parent is history else 0
        for call_id, child in begun_by(parent, start):
            is_interrupted = call_id in closed_ids
            if child.id in seen or (parent is history and not is_interrupted):
                continue
            seen.add(child.id)
            agents.append(SubAgent(child, parent.id, call_id, is_interrupted))
            open_calls = child.view().open_calls if is_interrupted else ()
            to_read.append((child, {call.id for call in open_calls}))
    return agents


def _answers(
    agent: HistoryLog, reason: str, doubts: Mapping[int, str], calls: Sequence[Action]
) -> list[Observation]:
    """Return the observations that close calls of an agent. ``doubts`` maps the id of a call to the
    calls below it that may have run.
    """
    return [
        replace(observation, content=f"{observation.content}{doubts.get(call.id, '')}")
        for call, observation in zip(calls, closing_observations(agent, reason, calls), strict=True)
    ]
