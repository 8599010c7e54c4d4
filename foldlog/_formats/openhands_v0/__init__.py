"""OpenHands V0: action and observation objects with integer ids.

A stream holds more than the agent's history: bookkeeping, hidden commands, the work of delegates. These records are
kept and not shown, and a condensation among them changes nothing. With ``as_history`` the records are the history
itself.

The records, and the events that they become:

    message, finish            Message; finish shows what the model said beside its last call, else its last words
    system                     SystemMessage
    condensation               CondensationAction, with the source's ids (the V0 dialect); a malformed one: Annotation
    condensation_request       CondensationRequest
    condense (observation)     CondensationSummary, an ordinary event
    null, change_agent_state, agent_state_changed    Annotation; in a history their observations are Observations
    every other action         Action: the call that the model wrote, where the record has it, else the action's name
                               and its args; one of the user or of V0 itself is not a call (see its source)
    error, user_rejected       Message from the environment where it answers no action
    every other observation    Observation; its content is what V0's memory told the model

``reading.py`` and ``writing.py`` are the two directions, ``recognition.py`` recognizes records, ``delegates.py`` finds
the work of delegates, and ``recalled.py`` has the knowledge that V0 recalled for its agent.

The oldest files nest an action and its observation in an array; resolver files have neither ids nor ``args``: there an
observation answers the action before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.format import Format, Options
from foldlog._formats.openhands_v0.delegates import outside_history
from foldlog._formats.openhands_v0.reading import OpenHandsV0Decoder
from foldlog._formats.openhands_v0.recognition import accepts, matches
from foldlog._formats.openhands_v0.writing import NAME, OpenHandsV0Encoder

__all__ = ["FORMAT"]


def _decoder(records: Iterable[Any], options: Options) -> OpenHandsV0Decoder:
    if options.past is not None:
        return OpenHandsV0Decoder(first_id=options.first_id, past=options.past)
    outside = () if options.as_history else outside_history(records)
    return OpenHandsV0Decoder(as_history=options.as_history, outside=outside)


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=OpenHandsV0Encoder,
    looks_ahead=True,
    live=True,
)
