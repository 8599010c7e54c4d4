"""Messages of Anthropic's API, as Cline and Roo Code keep them: ``{"role", "content": [blocks], …}``.

    api_conversation_history.json   of Cline and Roo Code, in a folder with the name of the task: see ``tasks.py``
    <session>.messages.json         of Cline since version 4
    any list of such messages       as a program sends them

The messages, and the events that they become:

    user: text, image, file         Message; from the environment where it is only what the tool adds
    user: tool_result               Observation, one a result
    assistant: text, thinking       Message
    assistant: tool_use             Action, one a use; text and thinking before it belong to it
    isSummary (Roo Code)            CondensationAction: its model is sent the summary and what comes later
    isTruncationMarker (Roo Code)   CondensationAction that forgets the messages with its ``truncationParent``
    a mark of Cline's deletions     CondensationAction
    a message without any           Annotation

``reading.py`` and ``writing.py`` are the two directions.
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.anthropic_messages.reading import NAME, AnthropicDecoder, accepts
from foldlog._formats.anthropic_messages.tasks import Tasks
from foldlog._formats.anthropic_messages.writing import AnthropicEncoder
from foldlog._formats.blocks import kind_of
from foldlog._formats.format import Format

__all__ = ["FORMAT"]

_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"))
_OF_OTHERS = ("tool_calls", "messageId")
"""Fields of a chat in OpenAI's form, and of Amp, which have such blocks too."""
_MILLISECONDS = 10**11
"""Times above it are in milliseconds."""


def _matches(record: Any) -> bool:
    """Return whether ``record`` has blocks that only Anthropic's messages have, or fields of Cline or Roo Code."""
    if not accepts(record) or type(record["content"]) is not list or any(key in record for key in _OF_OTHERS):
        return False
    kinds = {kind_of(block) for block in record["content"]}
    time = record.get("ts")
    is_kept = type(record.get("modelInfo")) is dict or (type(time) is int and time > _MILLISECONDS)
    return (is_kept and None not in kinds) or not _BLOCKS.isdisjoint(kinds)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    decoder=lambda records, options: AnthropicDecoder(options),
    encoder=AnthropicEncoder,
    files=Tasks(),
    rewritten=True,
    kept_in=(
        "~/.cline/data/tasks",
        "~/.config/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        "~/.config/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
        "~/Library/Application Support/Code/User/globalStorage/saoudrizwan.claude-dev/tasks",
        "~/Library/Application Support/Code/User/globalStorage/rooveterinaryinc.roo-cline/tasks",
    ),
    document=lambda records: [record for record in records if accepts(record)],  # without marks
    source_id=lambda record: record.get("id") if type(record) is dict else None,
)
