"""Codex rollouts: lines of ``{"timestamp", "type", "payload"}``, of several types, without ids.

The records, and the events that they become:

    response_item                what the model was shown and what it answered, by the payload's type:
        message                      Message, of the user, the agent or, where Codex itself speaks as user, the
                                     environment; a developer's or the system's is a SystemMessage
        function_call, custom_tool_call, local_shell_call     Action
        function_call_output, custom_tool_call_output         Observation
        reasoning, every other type                           Annotation
    session_meta, turn_context   SystemMessage where they bring instructions that were not said before, else Annotation
    compacted                    CondensationAction; the items of a replacement history are events before it
    event_msg                    Annotation: it repeats what is said elsewhere, or is bookkeeping
        thread_rolled_back           CondensationAction: the last turns are forgotten
    every other type             Annotation

``reading.py`` and ``writing.py`` are the two directions, ``recognition.py`` recognizes records,
``parts.py`` and ``outcome.py`` are about contents and failures, ``standing.py`` is the View as items of Codex,
``shown.py`` and ``said.py`` know what was shown and said before. Line by line, these are read from the history when a
record needs them: see ``CodexDecoder``.

Records do not tell which calls are of one response, so each call stands alone. The nth observation with an id is for
the nth call with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.codex.reading import CodexDecoder
from foldlog._formats.codex.recognition import accepts, conversation, matches
from foldlog._formats.codex.writing import NAME, CodexEncoder
from foldlog._formats.format import Format, Options

__all__ = ["FORMAT"]


def _decoder(records: Iterable[Any], options: Options) -> CodexDecoder:
    return CodexDecoder(options.prefix, first_id=options.first_id, past=options.past)


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=CodexEncoder,
    conversation=conversation,
    live=True,
    marks_errors=False,
)
