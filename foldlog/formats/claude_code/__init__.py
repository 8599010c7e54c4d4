"""Lines of Claude Code. Every line has a ``type``, and its id is a text. ``parentUuid`` makes the
lines a tree.

The lines, and the events that they become:

    user                      Message; from the environment if ``isMeta`` says that no human wrote
                              the line
    user, a tool's result     an Observation for each result
    user, isCompactSummary    CondensationAction that forgets the shown events, except the messages
                              that the boundary before the line names
    assistant, a text         Message
    assistant, a tool's use   an Action for each use; a text before the use in the same line is its
                              thought
    any other type            Annotation, also for a line with only thinking

Claude Code writes a model's response as several lines with one ``message.id``. The ``response_id``
of an action is the ``message.id`` of its line. The model's thinking is a separate line and becomes
an Annotation. The next action also gets the thinking, because a program must send the thinking to
the model again.

If a line continues from an earlier line, a Retraction takes back the branch between the two lines.
If a later line continues from the abandoned branch, a second Retraction brings it back. The View is
always the branch that ends in the newest line, also while a session grows. A View does not show the
side chains of sub-agents, unless the log has no main chain.

``reading.py`` makes the events. ``skeleton.py`` counts lines without making events. ``remains.py``
writes a line again without its redacted content. ``lines.py`` reads parts of lines. ``branches.py``
follows the tree of lines.
"""

from __future__ import annotations

from typing import Any

from foldlog.formats.claude_code.branches import accepts
from foldlog.formats.claude_code.lines import NAME
from foldlog.formats.claude_code.reading import ClaudeCodeDecoder
from foldlog.formats.claude_code.remains import RemainsEncoder
from foldlog.formats.claude_code.skeleton import ClaudeCodeSkeleton
from foldlog.formats.files.sub_agent_meta import begun_by
from foldlog.formats.format import Format, first_named
from foldlog.formats.record import member, text_or_none

_TYPES = frozenset(("user", "assistant", "system", "progress", "summary", "file-history-snapshot"))
_KEYS = ("uuid", "leafUuid", "messageId")


def _matches(record: Any) -> bool:
    """Return whether a record is certainly a line of Claude Code."""
    if not accepts(record):
        return False
    # each release of Claude Code adds types of lines, and all of them name their session
    is_line = type(record.get("sessionId")) is str or (
        record["type"] in _TYPES and any(key in record for key in _KEYS)
    )
    # Claude Code prints lines with "session_id" for other programs
    if not is_line or ("session_id" in record and "sessionId" not in record):
        return False
    if record["type"] in ("user", "assistant"):
        message = record.get("message")
        return type(message) is dict and "parts" not in message  # lines of Qwen Code have "parts"
    return "systemPayload" not in record


def _session(record: Any) -> str | None:
    """Return the name of the session of a line. For a line of a sub-agent, the name ends with the
    id of the sub-agent. Return None if the line does not name its sub-agent.
    """
    session = text_or_none(record, "sessionId") or None
    if session is None or record.get("isSidechain") is not True:
        return session
    agent = text_or_none(record, "agentId")
    return f"{session}/agent-{agent}" if agent else None


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    expected="a line of Claude Code with a text under 'type'",
    decoder=ClaudeCodeDecoder,
    encoder=RemainsEncoder,
    skeleton=ClaudeCodeSkeleton,
    conversation=first_named(_session),
    begun_by=begun_by,
    kept_in=("$CLAUDE_CONFIG_DIR/projects", "~/.claude/projects", "~/.config/claude/projects"),
    source_id=member("uuid"),
    own_key=member("uuid"),
    parts=("message", "content"),
)
