"""Sub-agents: conversations that a call of another conversation began.

The parent's log has an annotation ``sub_agent`` with the id of the conversation, whose cause is the
call. The attributes of the new conversation name the parent and the call. The annotation is written
first: a sub-agent never exists without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foldlog._base.values import JsonMap
from foldlog._figures.overview import PARENT, PARENT_CALL, parent_in
from foldlog._history.effects import closing, in_doubt_words
from foldlog.eventstore import (
    Action,
    Annotation,
    InvalidArgument,
    InvalidEvent,
    Observation,
    VersionConflict,
)
from foldlog.projections.tool_results import refuse_result

if TYPE_CHECKING:
    from foldlog._history.history import History

SUB_AGENT = "sub_agent"


def begin_child(
    parent: History, call: Action, conversation: str | None, attributes: JsonMap
) -> History:
    histories = parent._histories
    child = histories[conversation or f"{parent.id}/agent-{call.id}"]
    link = {PARENT: parent.id, PARENT_CALL: call.call_id or str(call.id)}
    if child.id not in histories:
        if all(call.id != open_call.id for open_call in parent.open_calls()):
            raise InvalidEvent(refuse_result(parent.id, call, parent.view()))
        begun = Annotation(name=SUB_AGENT, data={"conversation": child.id}, cause=call.id)
        parent.append(begun, idempotency_key=f"{SUB_AGENT} {child.id}")
        with suppress(VersionConflict):  # another worker may be first
            return histories.create(child.id, {**attributes, **link})
    if not link.items() <= child.attributes().items():
        raise InvalidArgument(
            f"conversation {child.id!r} exists, and call {call.id} of {parent.id!r} did not begin"
            " it; use another id"
        )
    return child


def begun_by(history: History, start: int = 0) -> Iterator[tuple[int, History]]:
    """Yield the sub-agents that calls from the event ``start`` on began, each with the id of its
    call. A fork shares the events of its parent, but not the sub-agents that they began. Cost: the
    function reads the events from ``start`` on, and the attributes of the sub-agents.
    """
    for event in history.events(start):
        if type(event) is Annotation and event.name == SUB_AGENT and event.cause is not None:
            child = history._histories[event.data["conversation"]]
            # It was not begun if its worker died in between, and may be erased.
            if child and parent_in(child.attributes()) == history.id:
                yield event.cause, child


def close_below(history: History, reason: str, calls: Sequence[Action]) -> list[Observation]:
    """Close the open calls of the sub-agents that ``calls`` began. Return the observations that
    close ``calls``, with the calls that may have run in their sub-agents.
    """
    called = {call.id for call in calls}
    lines = dict[int | None, str]()
    for call_id, child in begun_by(history, min(called)):
        if call_id in called:
            child.close_open_calls(reason)
            doubts = "".join(f"\n{line}" for line in _in_doubt(child))
            lines[call_id] = lines.get(call_id, "") + doubts
    return [
        replace(observation, content=f"{observation.content}{lines.get(observation.cause, '')}")
        for observation in closing(history, reason, calls)
    ]


def _in_doubt(agent: History) -> Iterator[str]:
    # The log is read, because a closing that was interrupted is repeated.
    for effect in agent.effects("unknown"):
        yield f"in {agent.id}, {in_doubt_words(effect.call, effect.key)}"
    for _, child in begun_by(agent):
        yield from _in_doubt(child)
