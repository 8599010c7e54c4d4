"""OpenHands V0: action and observation objects with integer ids.

A stream contains more than the agent's history: bookkeeping, hidden commands, and the work of
delegates. A View does not show records outside of the agent's history. A condensation outside of
the agent's history changes nothing. With ``as_history`` the records are the agent's history.

The records, and the events that they become:

    message                    Message
    finish                     Message with the thought and the text that the model wrote with this
                               call, or else the final text in its arguments
    system                     SystemMessage
    condensation               CondensationAction, with the ids of the source (the V0 dialect); a
                               malformed condensation is an Annotation
    condensation_request       CondensationRequest
    condense (observation)     CondensationSummary, an ordinary event
    null, change_agent_state, agent_state_changed    Annotation; with ``as_history``, observations
                                                     of these kinds are Observations
    every other action         Action: the call that the model wrote, if the record has the call,
                               otherwise the action's name and args. An action of the user or of V0
                               itself is not a call of the model (see its source)
    error, user_rejected       Message from the environment, if the record answers no action
    every other observation    Observation; its content is the text that V0's memory sent to the
                               model

``reading.py`` makes the events. ``usage.py`` finds calls of models in the events. ``memory.py`` has
the texts that V0's agent sent to its model.

The oldest files put an action and its observation into an array. Files of the resolver have neither
ids nor ``args``, so an observation answers the action before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.formats.format import Beside, Format
from foldlog.formats.model_calls import RecordedUsage
from foldlog.formats.openhands_v0.reading import NAME, OpenHandsV0Decoder, members_of
from foldlog.formats.openhands_v0.usage import calls_of_events
from foldlog.formats.record import dict_or_empty, usage_meta, within

_NAMES = frozenset(
    (
        "message",
        "system",
        "run",
        "run_ipython",
        "read",
        "write",
        "edit",
        "browse",
        "browse_interactive",
        "null",
        "call_tool_mcp",
        "mcp",
        "delegate",
        "think",
        "finish",
        "reject",
        "recall",
        "change_agent_state",
        "error",
        "condensation",
        "condensation_request",
        "task_tracking",
        "loop_recovery",
        "agent_state_changed",
        "condense",
    )
)
_KEYS_OF_ACTIONS = frozenset(("args", "thought", "wait_for_response"))
"""Every action has ``args``, ``thought`` or ``wait_for_response``. In the oldest files an action
has its arguments as its own keys, and has no ``args``.
"""


def _matches(record: Any) -> bool:
    """Return whether ``record`` is an action, an observation, or an array of both. Only the oldest
    files have arrays.
    """
    if type(record) is list:
        return len(record) == 2 and all(map(_matches_one, record))
    return _matches_one(record)


def _matches_one(record: Any) -> bool:
    """Return whether a record is an action or an observation. A message of SWE-agent has an action
    too, and a role.
    """
    if type(record) is not dict or "role" in record:
        return False
    action = record.get("action")
    observation = record.get("observation")
    if type(action) is str:
        if action in _NAMES:
            return not _KEYS_OF_ACTIONS.isdisjoint(record)
        return type(record.get("args")) is dict and ("source" in record or "message" in record)
    return (
        type(observation) is str
        and "content" in record
        and (observation in _NAMES or "extras" in record)
    )


def _accepts(record: Any) -> bool:
    """Return whether a record may be an event of V0, or a pair of them."""
    members = members_of(record)
    is_array = type(record) is list
    return len(members) == (2 if is_array else 1) and all(map(_names_its_kind, members))


def _names_its_kind(member: Any) -> bool:
    """Return whether an object names an action or an observation."""
    if type(member) is not dict:
        return False
    return type(member.get("action")) is str or type(member.get("observation")) is str


def _beside(fields: JsonMap, _: Sequence[Any]) -> Beside:
    """Return the usage of all models in the metrics beside the records."""
    metrics = dict_or_empty(fields.get("metrics", fields))
    tokens = metrics.get("accumulated_token_usage", metrics)
    cost = metrics.get("accumulated_cost") or None
    lists = [metrics.get("token_usages"), metrics.get("costs")]
    # each list has one item per call of a model
    calls = max((len(items) for items in lists if type(items) is list), default=0)
    # No model is set, because the metrics are the sum over all models. The events name their
    # models.
    meta = usage_meta(tokens, cost=cost, calls=calls)
    return (), [meta] if meta else []


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    decoder=OpenHandsV0Decoder,
    expected="an event object",
    beside=_beside,
    recorded_usage=RecordedUsage(calls=calls_of_events),
    source_id=lambda record: within(next(iter(members_of(record)), None), "id"),
)
