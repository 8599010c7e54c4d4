"""OpenHands V1: event objects of several ``kind``s, with text ids.

The records, and the events that they become:

    SystemPromptEvent                                      SystemMessage
    SystemPromptUpdateEvent                                CondensationAction that forgets the
                                                           earlier prompt, then SystemMessage
    MessageEvent                                           Message
    MessageEvent with the role tool                        Observation, or a hidden Message if the
                                                           call already has its result
    ActionEvent                                            Action; the arguments are the text that
                                                           the model wrote
    ObservationEvent, UserRejectObservation, AgentErrorEvent   Observation
    CondensationSummaryEvent                               CondensationSummary, an ordinary event
    Condensation                                           CondensationAction, with foldlog's ids
    CondensationRequest                                    CondensationRequest
    every other kind, known or not                         Annotation

``reading.py`` makes events. ``writing.py`` makes records. ``contents.py`` converts contents, and
finds the text of a result. ``usage.py`` finds calls of models in events. The code that writes a
growing conversation as files of OpenHands is in ``foldlog/adapters/_records/``.

Events form a tree (``parent_id``). Before a step on another branch, a retraction is added. The View
is always the branch of the newest step, even if the user moved the conversation back to an older
step. Records that the adapter appends one by one are always on the active branch, and the adapter
adds the retractions itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.formats.files.readers import record_in
from foldlog.formats.format import Beside, Format
from foldlog.formats.model_calls import RecordedUsage
from foldlog.formats.openhands_v1.reading import OpenHandsV1Decoder, accepts
from foldlog.formats.openhands_v1.usage import calls_of_events
from foldlog.formats.openhands_v1.writing import NAME, OpenHandsV1Encoder
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    first_of,
    member,
    text_or_empty,
    usage_meta,
)

SUB_AGENTS = "subagents"
"""The folder of a conversation with the conversations that it began."""
_SUB_AGENT_PREFIXES = ("delegate:", "task:")
"""The uses of a model that a conversation counts for its sub-agents begin with these."""
_ENDINGS = ("Event", "Observation", "Condensation", "CondensationRequest")
"""The ends of the names of kinds."""


def _matches(record: Any) -> bool:
    """Return whether a record is certainly an event of V1."""
    if not accepts(record) or "id" not in record:
        return False
    return record["kind"].endswith(_ENDINGS) or "timestamp" in record or "source" in record


def metrics_in(state: Any) -> dict[str, Fields]:
    """Return the metrics that a state records for each use of a model."""
    stats = dict_or_empty(state, "stats")
    uses = dict_or_empty(first_of(stats, "usage_to_metrics", "service_to_metrics"))
    return {use: report for use, report in uses.items() if type(report) is dict}


def _begun_by(path: Path) -> dict[str, str]:
    """Return the attribute that says which conversation began the one with this file."""
    home = path.absolute()
    if home.name == "events":
        home = home.parent
    if home.parent.name != SUB_AGENTS:
        return {}
    state = home.parent.parent / "base_state.json"
    recorded = record_in(state).value if state.exists() else None
    return {"parent": text_or_empty(recorded, "id") or home.parent.parent.name}


def _beside(state: JsonMap, _: Sequence[Any]) -> Beside:
    """Return the usage of each use of a model in the state beside the records."""
    usages: list[Fields] = []
    for use, report in metrics_in(state).items():
        if SUB_AGENTS in state and use.startswith(_SUB_AGENT_PREFIXES):
            continue  # the sub-agent's own conversation has its usage
        tokens = report.get("accumulated_token_usage")
        calls = len(dicts_in(report, "token_usages"))
        model = report.get("model_name")
        cost = report.get("accumulated_cost") or None
        usage = usage_meta(tokens, model=model, cost=cost, calls=calls)
        if usage:
            usages.append(usage | {"use": use})
    return (), usages


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    expected="an event with a text under 'kind'",
    decoder=OpenHandsV1Decoder,
    encoder=OpenHandsV1Encoder,
    lacks=frozenset(
        (
            "detail of an image",
            "block of thinking of a message",
            "item of reasoning",
            "count of tokens",
            "cost",
            "form of a custom tool's call",
            "field of a chat message",
            "field of a chat call",
            "part of a failed result",
            "part of a system prompt",
        )
    ),
    beside=_beside,
    begun_by=_begun_by,
    recorded_usage=RecordedUsage(calls=calls_of_events),
    source_id=member("id"),
)
