"""OpenHands V1: event objects told apart by ``kind``, with ids of text.

What a record says, and where it goes:

    SystemPromptEvent                                      SystemMessage
    MessageEvent                                           Message
    ActionEvent                                            Action, its arguments the text that the model wrote
    ObservationEvent, UserRejectObservation, AgentErrorEvent   Observation
    CondensationSummaryEvent                               CondensationSummary, an ordinary event
    Condensation                                           CondensationAction, in our ids (dialect "ordered")
    CondensationRequest                                    CondensationRequest
    every other kind, known or not                         Annotation

Events that branch off (``parent_id``) are a tree: the branch that ends in the leaf is shown and acts; the others are
kept, not shown, and a condensation on one of them is an Annotation, since it changes nothing.
"""

from __future__ import annotations

from foldlog.formats.openhands_v1.branches import outside_branch
from foldlog.formats.openhands_v1.reading import Decoder
from foldlog.formats.openhands_v1.writing import FORMAT, Encoder

__all__ = ["FORMAT", "Decoder", "Encoder", "outside_branch"]
