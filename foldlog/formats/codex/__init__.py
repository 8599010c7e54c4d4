"""Codex rollouts: lines of ``{"timestamp", "type", "payload"}``, of several types, without ids.

The records, and the events that they become:

    response_item                what the model saw and what the model answered, by the payload's
                                 type:
        message                      Message of the user, of the agent, or of the environment if
                                     Codex itself wrote the message as the user; a SystemMessage if
                                     the role is developer or system
        function_call, custom_tool_call, local_shell_call     Action
        function_call_output, custom_tool_call_output         Observation
        agent_message                                         Message from one agent to another
        reasoning, every other type                           Annotation
    inter_agent_communication    Message from one agent to another
    session_meta, turn_context   SystemMessage if they have new instructions, otherwise Annotation
        with a history_base          a Retraction of the records that the session does not
                                     continue, if there are any, and then the same event
    compacted                    CondensationAction, after the events of the items in its
                                 replacement history
    event_msg                    Annotation, because the line repeats another record or is
                                 bookkeeping
        thread_rolled_back           Retraction of the last turns, or a CondensationAction if some
                                     of these turns began before a compaction
    every other type             Annotation

``reading.py`` makes the events. ``lines.py`` reads the fields of a line, and finds out whether a
call failed. ``compaction.py`` chooses the messages that stay after a compaction. ``skeleton.py``
reads the fields for lists and figures. ``usage.py`` finds the calls of models in the events.

Records do not say which calls belong to one response. Codex writes the results of a response after
all of its calls. foldlog therefore ends a response at the first result, or at the first message
that is not from the model. An observation answers the newest open call with the same id.
"""

from __future__ import annotations

import json
from typing import Any

from foldlog.formats.codex.lines import ENVELOPES, is_session, line_of
from foldlog.formats.codex.reading import CodexDecoder
from foldlog.formats.codex.skeleton import CodexSkeleton
from foldlog.formats.codex.usage import CodexCalls
from foldlog.formats.format import Format, first_named
from foldlog.formats.model_calls import RecordedUsage
from foldlog.formats.record import text_or_none, within

NAME = "codex"


def _matches(record: Any) -> bool:
    if type(record) is not dict:
        return False
    kind = record.get("type")
    if type(kind) is str:
        return kind in ENVELOPES and type(record.get("payload")) is dict
    return is_session(record) or record.get("record_type") == "state"


def _accepts(record: Any) -> bool:
    return type(record) is dict and line_of(record) is not None


def _session(record: Any) -> str | None:
    """Return the id of the session that a record describes, or None for any other record."""
    line = line_of(record) if type(record) is dict else None
    if line is None or line.type != "session_meta":
        return None
    return text_or_none(line.payload, "id") or None


def _source_id(record: Any) -> Any:
    line = line_of(record) if type(record) is dict else None
    return None if line is None else within(line.payload, "id")


def _own_key(record: Any) -> Any:
    """Return what stays the same of an item when Codex migrates its rollout. Items have no ids, and
    their keys are then in another order.
    """
    line = line_of(record) if type(record) is dict else None
    if line is None or line.type != "response_item":
        return None
    return json.dumps(line.payload, sort_keys=True)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a record of Codex with a text under 'type'",
    decoder=CodexDecoder,
    skeleton=CodexSkeleton,
    conversation=first_named(_session),
    looks_like="openai-responses",
    own_key=_own_key,
    source_id=_source_id,
    recorded_usage=RecordedUsage(reader=CodexCalls),
    says_again=True,
    kept_in=(
        "$CODEX_HOME/sessions",
        "$CODEX_HOME/archived_sessions",
        "~/.codex/sessions",
        "~/.codex/archived_sessions",
    ),
)
