"""Claude Code: lines of several ``type``s. The ids of the lines are texts, and ``parentUuid`` makes
the lines a tree.

The lines, and the events that they become:

    user                      Message; from the environment if ``isMeta`` says that no human wrote
                              it
    user, a tool's result     an Observation for each result
    user, isCompactSummary    CondensationAction that forgets the shown events, except the messages
                              that the boundary before it names
    assistant, a text         Message
    assistant, a tool's use   an Action for each use; a text before it in the same line is its
                              thought
    every other type, known or not, and what only thinks   Annotation

A model's response has several lines with the same ``message.id``, which is the ``response_id`` of
its actions. The model's thinking is a separate line. The line of thinking becomes an Annotation.
The thinking is also added to the next action, because it has to be sent to a model again.

If a line leaves a branch and continues from an earlier line, a Retraction takes the branch back. A
return to that branch is a Retraction too. So a session can grow, and the View is the branch that
ends in the newest line. Side chains of sub-agents are stored and not shown, unless the log has no
main chain.

``reading.py`` makes the events, ``skeleton.py`` counts lines without making events, ``remains.py``
writes the rest of a redacted line, ``lines.py`` reads parts of lines, and ``branches.py`` follows
the tree.
"""

from __future__ import annotations

from typing import Any

from foldlog._formats.claude_code.branches import accepts
from foldlog._formats.claude_code.lines import NAME
from foldlog._formats.claude_code.reading import ClaudeCodeDecoder
from foldlog._formats.claude_code.remains import RemainsEncoder
from foldlog._formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog._formats.format import Format, first_named
from foldlog._formats.record import member, text_or_none, within

_TYPES = frozenset(
    (
        "user",
        "assistant",
        "system",
        "progress",
        "summary",
        "file-history-snapshot",
        "queue-operation",
    )
)
_KEYS = ("sessionId", "uuid", "leafUuid", "messageId")


def _matches(record: Any) -> bool:
    """Return whether ``record`` has a type and a field that only Claude Code's lines have."""
    if (
        not accepts(record)
        or record["type"] not in _TYPES
        or not any(key in record for key in _KEYS)
    ):
        return False
    # printed for other programs
    if "session_id" in record and "sessionId" not in record:
        return False
    if record["type"] in ("user", "assistant"):
        message = record.get("message")
        return type(message) is dict and "parts" not in message  # lines of Qwen Code have "parts"
    return "systemPayload" not in record


def _session(record: Any) -> str | None:
    """Return the session that a line names, with the id of the sub-agent if the line belongs to a
    sub-agent. Return an empty text if the id of the sub-agent is unknown.
    """
    session = text_or_none(within(record, "sessionId")) or None
    if session is None or record.get("isSidechain") is not True:
        return session
    agent = text_or_none(record.get("agentId"))
    return f"{session}/agent-{agent}" if agent else ""


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    expected="a line of Claude Code with a text under 'type'",
    decoder=ClaudeCodeDecoder,
    encoder=RemainsEncoder,
    skeleton=ClaudeCodeSkeleton,
    conversation=first_named(_session),
    kept_in=("$CLAUDE_CONFIG_DIR/projects", "~/.claude/projects", "~/.config/claude/projects"),
    source_id=member("uuid"),
    parts=("message", "content"),
)
