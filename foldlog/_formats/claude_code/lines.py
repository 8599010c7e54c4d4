"""Parts of Claude Code's lines: compactions, attachments and titles.

A compaction is a boundary line, then a line with a summary. After it a model is shown the summary
and later lines. Newer releases keep some messages, which the boundary names: all by their ids, or
the first and the last. They are placed after their *anchor*: the summary, or the boundary, if the
messages are a beginning that the summary follows.

Attachments are context that Claude Code gives its model besides the messages. Since 2026 a line has
its exact words: ``rendered``, the words that the model was shown (environment, skills, dates,
changed files), and ``prompt_snapshot``, the system prompt and the tools, when they are new.

The title of a session is by its user, by a model, or from the summary of its conversation.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog._formats.blocks import content_of, said
from foldlog._formats.event_fields import parts_in
from foldlog._formats.record import dict_or_empty, dicts_in, strings_in, text_or_none, within
from foldlog.eventstore import Content

NAME = "claude-code"
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
"""Fields that each line repeats."""


def is_boundary(record: dict[str, Any]) -> bool:
    return record.get("type") == "system" and record.get("subtype") == "compact_boundary"


def cleared_by(record: dict[str, Any]) -> list[str]:
    """Return the ids of the calls whose results a microcompaction cleared: their model sees a
    placeholder instead.
    """
    if record.get("type") != "system" or record.get("subtype") != "microcompact_boundary":
        return []
    return strings_in(within(record, "microcompactMetadata", "compactedToolIds"))


def is_summary(record: dict[str, Any]) -> bool:
    return record.get("type") == "user" and record.get("isCompactSummary") is True


_REASONS = {"auto": "tokens", "manual": "request"}
"""The cause of a compaction, in the words of our condensers."""
_TOKENS = {"preTokens": "tokens_before", "postTokens": "tokens_after"}


def metadata_of(boundary: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a condensation from its boundary: the source's own metadata, and the
    same in the words of our condensers.
    """
    metadata = {
        key: value
        for key, value in dict_or_empty(boundary.get("compactMetadata")).items()
        if not key.startswith("preserved")
    }
    trigger = metadata.get("trigger")
    if type(trigger) is str and trigger in _REASONS:
        metadata["reason"] = _REASONS[trigger]
    ours = {name: metadata[key] for key, name in _TOKENS.items() if type(metadata.get(key)) is int}
    return metadata | ours


class Kept(NamedTuple):
    """The messages that a compaction keeps: those with these ids, or those from ``first`` to
    ``last``.
    """

    ids: frozenset[str] = frozenset()
    first: str | None = None
    last: str | None = None
    anchor: str | None = None

    @classmethod
    def by(cls, boundary: dict[str, Any]) -> Kept:
        """Read the kept messages from the boundary's metadata."""
        metadata = dict_or_empty(boundary.get("compactMetadata"))
        messages = metadata.get("preservedMessages")
        segment = metadata.get("preservedSegment")
        if type(messages) is dict:
            names = strings_in(messages.get("allUuids", messages.get("uuids")))
            return cls(ids=frozenset(names), anchor=text_or_none(messages.get("anchorUuid")))
        if type(segment) is dict:
            first, last, anchor = (
                text_or_none(segment.get(key)) for key in ("headUuid", "tailUuid", "anchorUuid")
            )
            return cls(first=first, last=last, anchor=anchor)
        return cls()

    def continues_from(self, parent: str) -> bool:
        """Return whether a line that follows the line ``parent`` continues the kept messages, and
        so the compaction.
        """
        return parent in self.ids or parent == self.last

    def among(self, names: list[str | None]) -> set[str | None]:
        """Return the kept ones of the messages of a View."""
        kept: set[str | None] = {*self.ids}
        if self.first is not None and self.last is not None and {self.first, self.last} <= {*names}:
            kept.update(names[names.index(self.first) : len(names) - names[::-1].index(self.last)])
        return kept


TOOL = {"name": "name", "description": "description", "schema": "parameters"}
"""The fields of a tool in a snapshot, and their names in OpenAI's shape."""


def words_of(record: dict[str, Any]) -> Content:
    """Return the words of an attachment that the model was shown; empty if the line has none."""
    rendered = record.get("rendered")
    if record.get("type") != "attachment" or type(rendered) is not list:
        return ""
    contents = [each.get("content") for each in rendered if type(each) is dict]
    return said([part for content in contents for part in parts_in(content_of(content))])


def prompt_of(record: dict[str, Any]) -> tuple[str, tuple[dict[str, Any], ...]] | None:
    """Return the system prompt and the tools of a snapshot, in OpenAI's shape; None for any other
    line, or if both are empty.
    """
    attachment = record.get("attachment")
    if record.get("type") != "attachment" or type(attachment) is not dict:
        return None
    prompt = attachment.get("systemPrompt")
    tools = attachment.get("tools")
    if attachment.get("type") != "prompt_snapshot" or type(prompt) is not list:
        return None
    text = "\n".join(strings_in(prompt))
    given = dicts_in(tools)
    is_known = given == tools and all(tuple(tool) == tuple(TOOL) for tool in given)
    if is_known:
        named = [{TOOL[key]: value for key, value in tool.items()} for tool in given]
    else:
        named = []
    shaped = tuple({"type": "function", "function": tool} for tool in named)
    return (text, shaped) if text.strip() or shaped else None


TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""Types of lines with a title, the weakest first, and the field of the title."""
_RANKS = {kind: rank for rank, kind in enumerate(TITLES)}


class Titles:
    """Finds the lines that give the log a title: those with a title at least as strong as all
    earlier titles.

    A log may begin with summaries of other sessions: a summary is of this session if the line that
    it names is in it. If that line comes later, it gives the title. So the title of a line depends
    only on earlier lines, and a log that grows is read in the same way.
    """

    def __init__(self) -> None:
        self._rank = 0
        self._lines: set[str] = set()
        self._awaiting: dict[str, str] = {}

    def of(self, record: dict[str, Any]) -> str | None:
        """Return the title that the next line gives."""
        kind = record.get("type")
        uuid = record.get("uuid")
        awaited = None
        if type(uuid) is str:
            self._lines.add(uuid)
            awaited = self._awaiting.pop(uuid, None)
        rank = _RANKS.get(kind, -1) if type(kind) is str else -1
        title = record.get(TITLES[str(kind)]) if rank >= self._rank else None
        if type(title) is not str or not title.strip():
            return awaited if self._rank == 0 else None
        if rank == 0:
            return self._summary(title, record.get("leafUuid"))
        self._rank = rank
        return title

    def _summary(self, title: str, leaf: Any) -> str | None:
        if type(leaf) is not str:
            return None
        if leaf in self._lines:
            return title
        self._awaiting[leaf] = title
        return None
