"""OpenHands V1: event objects of several ``kind``s, with text ids.

The records, and the events that they become:

    SystemPromptEvent                                      SystemMessage
    SystemPromptUpdateEvent                                the prompt before it is forgotten; SystemMessage
    MessageEvent                                           Message; of a tool Observation, or not shown beside one
    ActionEvent                                            Action, its arguments the text that the model wrote
    ObservationEvent, UserRejectObservation, AgentErrorEvent   Observation
    CondensationSummaryEvent                               CondensationSummary, an ordinary event
    Condensation                                           CondensationAction, in our ids
    CondensationRequest                                    CondensationRequest
    every other kind, known or not                         Annotation

``reading.py`` and ``writing.py`` are the two directions, ``recognition.py`` recognizes records, ``blocks.py`` converts
contents, ``branches.py`` follows the tree, and ``standing.py`` tracks the earlier events that a record may name.
``event_files.py`` is a growing conversation as the files of OpenHands.

Events that branch off (``parent_id``) are a tree: a retraction comes before a step on another branch, and at the
end where the leaf is not the last step. Where records come one by one, all of them are on the active branch, and
``event_files.py`` makes the retractions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.format import Format, Options, RecordDecoder
from foldlog._formats.openhands_v1.branches import find_branches
from foldlog._formats.openhands_v1.reading import OpenHandsV1Decoder, WholeHistoryDecoder
from foldlog._formats.openhands_v1.recognition import accepts, matches
from foldlog._formats.openhands_v1.writing import NAME, OpenHandsV1Encoder

__all__ = ["FORMAT"]


def _decoder(records: Iterable[Any], options: Options) -> RecordDecoder:
    if options.past is not None:
        return OpenHandsV1Decoder(first_id=options.first_id, past=options.past)
    if options.leaf is not None:
        return OpenHandsV1Decoder(branches=find_branches(records, options.leaf))
    return WholeHistoryDecoder(records)


def _source_id(record: Any) -> Any:
    return record.get("id") if type(record) is dict else None


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=OpenHandsV1Encoder,
    looks_ahead=True,
    live=True,
    source_id=_source_id,
)
