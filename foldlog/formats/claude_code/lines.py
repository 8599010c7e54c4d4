"""Parts of Claude Code's lines: compactions, attachments and titles.

A compaction consists of a boundary line and a line with a summary. After a compaction, the model
sees the summary and later lines. In newer releases of Claude Code, a compaction also keeps some
messages. The boundary names the ids of all kept messages, or of the first and the last kept
message. The kept messages come after their *anchor*. The anchor is the summary, or the boundary if
the kept messages come before the summary.

Attachments are context that Claude Code sends to its model besides the messages. Since 2026 the
field ``rendered`` of an attachment has the exact text for the model (environment, skills, dates,
changed files). ``prompt_snapshot`` has a new system prompt and new tools.

The title of a session comes from the user, from a model, or from a summary of the conversation.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Any, Final, NamedTuple

from foldlog.eventstore import Content, Source
from foldlog.eventstore.usage import cost_of
from foldlog.formats.blocks import content_of, content_of_parts, is_blank
from foldlog.formats.event_fields import parts_in, text_part
from foldlog.formats.hash_set import crc32
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    first_of,
    strings_in,
    text_or_none,
)

NAME = "claude-code"

MARK = "foldlog"
"""The key of the session in the first line that foldlog handed over. Claude Code keeps the key in
the forks of the session.
"""

ENVELOPE = (
    "isSidechain",
    "userType",
    "entrypoint",
    "cwd",
    "sessionId",
    "version",
    "gitBranch",
    "slug",
    "agentId",
)


def cost_in(value: Any) -> float | None:
    """Return the ``costUSD`` of a line, which releases before 1.0.9 wrote. They wrote 0 if they
    knew no price.
    """
    return cost_of(value) or None


WITHOUT_PARENT = (
    "a line names the parent {}, which no earlier line has, so the View shows the lines before it;"
    " Claude Code resumes the session without them, unless a later line is this parent"
)


RESULT_FIRST = (
    "the result of the call {} was written before its call; Views show it after the call, where"
    " Claude Code sends it"
)
ONE_ID = (
    "replies to several messages of the user have the id {} and no requestId, so totals count them"
    " as one reply, with the tokens of the largest"
)
EARLY_MAX: Final = 100
"""The number of results that wait for their calls."""


def is_boundary(record: Fields) -> bool:
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def cleared_by(record: Fields) -> list[str]:
    """Return the ids of the calls whose results a microcompaction cleared. The model sees a
    placeholder instead of a cleared result.
    """
    if record.get("type") != "system" or record.get("subtype") != "microcompact_boundary":
        return []
    return strings_in(record, "microcompactMetadata", "compactedToolIds")


def is_summary(record: Fields) -> bool:
    return record.get("type") == "user" and record.get("isCompactSummary") is True


_REASONS = {"auto": "tokens", "manual": "request"}
"""Maps the cause of a compaction in Claude Code to the reason of a condensation in foldlog."""
_TOKENS = {"preTokens": "tokens_before", "postTokens": "tokens_after"}


def metadata_of(boundary: Fields) -> Fields:
    """Return the boundary's metadata for a condensation. Some values are repeated under the keys
    that foldlog's condensers use.
    """
    metadata = {
        key: value
        for key, value in dict_or_empty(boundary, "compactMetadata").items()
        if not key.startswith("preserved")
    }
    trigger = metadata.get("trigger")
    if type(trigger) is str and trigger in _REASONS:
        metadata["reason"] = _REASONS[trigger]
    ours = {name: metadata[key] for key, name in _TOKENS.items() if type(metadata.get(key)) is int}
    return metadata | ours


class Kept(NamedTuple):
    """The messages that a compaction keeps. Either ``ids`` names all kept messages, or ``first``
    and ``last`` name the ends of their range.
    """

    ids: frozenset[str] = frozenset()
    first: str | None = None
    last: str | None = None
    anchor: str | None = None

    @classmethod
    def by(cls, boundary: Fields) -> Kept:
        """Return the messages that the compaction with this boundary keeps."""
        metadata = dict_or_empty(boundary, "compactMetadata")
        messages = metadata.get("preservedMessages")
        segment = metadata.get("preservedSegment")
        if type(messages) is dict:
            names = strings_in(first_of(messages, "allUuids", "uuids"))
            return cls(ids=frozenset(names), anchor=text_or_none(messages, "anchorUuid"))
        if type(segment) is dict:
            first, last, anchor = (
                text_or_none(segment.get(key)) for key in ("headUuid", "tailUuid", "anchorUuid")
            )
            return cls(first=first, last=last, anchor=anchor)
        return cls()

    def continues_from(self, parent: str) -> bool:
        """Return whether a line whose parent is ``parent`` comes right after the kept messages."""
        return parent in self.ids or parent == self.last

    def parents(self) -> list[str]:
        """Return each id for which ``continues_from`` is true."""
        return sorted(self.ids) if self.last is None else [*sorted(self.ids), self.last]

    def among(self, names: list[str | None]) -> set[str | None]:
        """Return those ids of ``names`` that are kept. The ids that the boundary lists are returned
        even if ``names`` has them not.
        """
        names_shown: set[str | None] = {*self.ids}
        if self.first is not None and self.last is not None and {self.first, self.last} <= {*names}:
            names_shown.update(
                names[names.index(self.first) : len(names) - names[::-1].index(self.last)]
            )
        return names_shown


TOOL = {"name": "name", "description": "description", "schema": "parameters"}


def words_of(record: Fields) -> Content:
    """Return the text that the model gets for an attachment. Return an empty text if the line has
    no such text.
    """
    rendered = record.get("rendered")
    if record.get("type") != "attachment" or type(rendered) is not list:
        return ""
    contents = [message.get("content") for message in rendered if type(message) is dict]
    return content_of_parts(
        [part for content in contents for part in parts_in(content_of(content))]
    )


def queued_prompt_of(record: Fields) -> tuple[Content, Source] | None:
    """Return what somebody wrote while the model worked, and who wrote it. Return None for a line
    without such a message. Claude Code sends these messages, but before the field ``rendered`` it
    stored only their own words.
    """
    if not _is_queued(record):
        return None
    attachment = record["attachment"]
    prompt = attachment.get("prompt")
    parts = [text_part(prompt)] if type(prompt) is str else [*parts_in(content_of(prompt))]
    is_prompt = attachment.get("commandMode") in (None, "prompt")
    is_persons = text_or_none(attachment, "origin", "kind") in (None, "human")
    return content_of_parts(parts), "user" if is_prompt and is_persons else "environment"


def command_of(record: Fields) -> str | None:
    """Return the text of a command that a person gave to Claude Code, or what the command printed.
    Claude Code sends both to the model, and no other line of the type ``system``.
    """
    return text_or_none(record, "content") if _is_command(record) else None


def is_of_person(record: Fields) -> bool:
    """Return whether a line that is no message has a command or a message that was sent while the
    model worked.
    """
    return _is_command(record) or _is_queued(record)


def _is_command(record: Fields) -> bool:
    return record.get("type") == "system" and record.get("subtype") == "local_command"


def _is_queued(record: Fields) -> bool:
    is_attachment = record.get("type") == "attachment"
    return is_attachment and dict_or_empty(record, "attachment").get("type") == "queued_command"


def prompt_of(record: Fields) -> tuple[str, tuple[Fields, ...]] | None:
    """Return the system prompt and the tools of a snapshot, in OpenAI's format. Return None if the
    line has no snapshot, or if the prompt and the tools are empty.
    """
    attachment = record.get("attachment")
    if record.get("type") != "attachment" or type(attachment) is not dict:
        return None
    prompt = attachment.get("systemPrompt")
    tools = attachment.get("tools")
    if attachment.get("type") != "prompt_snapshot" or type(prompt) is not list:
        return None
    text = "\n".join(strings_in(prompt))
    tool_list = dicts_in(tools)
    is_known = tool_list == tools and all(tuple(tool) == tuple(TOOL) for tool in tool_list)
    if is_known:
        named = [{TOOL[key]: value for key, value in tool.items()} for tool in tool_list]
    else:
        named = []
    shaped = tuple({"type": "function", "function": tool} for tool in named)
    return (text, shaped) if text.strip() or shaped else None


def said_beside(record: Fields) -> tuple[Content, Source] | None:
    """Return what the model gets of a line that is no message, and who wrote it: a message that was
    sent while the model worked, a command and what it printed, or other context. Return None for a
    line of which the model gets nothing.
    """
    queued = queued_prompt_of(record)
    rendered = words_of(record)
    text_and_source: tuple[Content, Source] | None
    if not is_blank(rendered):
        text_and_source = rendered, "environment" if queued is None else queued[1]
    elif queued is not None:
        text_and_source = queued
    else:
        command = command_of(record)
        text_and_source = None if command is None else (command, "environment")
    return None if text_and_source is None or is_blank(text_and_source[0]) else text_and_source


SAYING_BESIDE: Final = frozenset(("attachment", "system"))
"""The types of the lines from which ``said_beside`` returns a text."""


TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Maps the type of a line to the field with the title. The weakest title comes first."""
LINES_MAX: Final = 4_096
"""A summary finds its line among this many of the newest lines, so that the state of a long log
stays small.
"""
_RANKS = {kind: rank for rank, kind in enumerate(TITLES)}


class Titles:
    """Finds the lines that set the title of the log. A line sets the title only if no earlier title
    has a higher rank.

    A log may begin with summaries of other sessions. A summary names a line, and belongs to this
    session if the log has that line. If the named line comes after the summary, the title is set
    when the named line is read. A title depends only on earlier lines, so a growing log and a
    complete log get equal titles.
    """

    def __init__(
        self, rank: int = 0, lines: bytes = b"", awaiting: dict[str, str] | None = None
    ) -> None:
        """Continue from a stored state. ``lines`` has hashes of the newest lines, and ``awaiting``
        maps lines that have not come yet to their titles.
        """
        self.rank = rank
        self.lines = deque(array("I", lines), LINES_MAX)
        self.awaiting = {} if awaiting is None else awaiting

    def of(self, kind: str, uuid: Any, title: Any, leaf: Any) -> str | None:
        """Return the title that a line sets, or None."""
        awaited = None
        if type(uuid) is str:
            self.lines.append(number_of(uuid))
            awaited = self.awaiting.pop(uuid, None)
        rank = _RANKS.get(kind, -1)
        if rank < self.rank or type(title) is not str or not title.strip():
            return awaited
        if rank > 0:
            self.rank = rank
            self.awaiting.clear()
            return title
        if type(leaf) is not str:
            return None
        if number_of(leaf) in self.lines:
            return title
        self.awaiting[leaf] = title
        return None


def number_of(uuid: str) -> int:
    """Return the number by which the id of a line is remembered. A few ids have equal numbers."""
    return crc32(uuid.encode(errors="surrogatepass"))
