"""Sessions of pi and OpenClaw: JSON Lines. The first line is a ``session``, and all other lines are
entries of a tree.

The entries, and the events that they become:

    message of a user, an assistant   Message; if the assistant calls tools, an Action for each call
    message of a toolResult           Observation
    message of a bashExecution        Message from the environment, with the text that pi sends to
                                      its model
    custom_message, branch_summary, and messages of these roles   Message from the environment
    message of a system               SystemMessage: first the prompt, then changes of the prompt
    context_edit                      CondensationAction: an entry is left out, or replaced by
                                      another text
    compaction                        CondensationAction: pi sends its model the summary and the
                                      entries from ``firstKeptEntryId`` on; this entry may be before
                                      an earlier compaction
    every other type                  Annotation; the name in ``session_info`` is the title

The View is the branch that ends in the last entry. If an entry does not continue the branch, a
Retraction comes first. If the parent of an entry is missing, the entry follows the previous entry.
Before version 2, entries had no ids. An entry without an id follows the entry of the previous line,
and ``firstKeptEntryIndex`` counts lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog.eventstore import Event, Retraction, Source
from foldlog.formats.blocks import content_of_parts, kind_of, shown_blocks, texts_of, thinking_of
from foldlog.formats.format import Format, first_named
from foldlog.formats.messages import spoken
from foldlog.formats.open_calls import NewestCalls
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    has,
    member,
    omit,
    text_or_empty,
    text_or_none,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts

NAME = "pi"

_FIELDS = {
    "session": "cwd",
    "compaction": "tokensBefore",
    "branch_summary": "fromId",
    "model_change": "modelId",
    "thinking_level_change": "thinkingLevel",
    "custom": "customType",
    "custom_message": "customType",
    "label": "targetId",
    "session_info": "parentId",
}
"""Maps the type of an entry to a field that only pi writes into entries of this type."""
_ONLY_MESSAGES = ("timestamp", "provider", "toolCallId", "command", "customType")


_accepts = has(type=str)


def _matches(record: Any) -> bool:
    """Return whether a record is certainly an entry of pi."""
    if not _accepts(record) or type(record.get("timestamp")) is not str:
        return False
    message = record.get("message")
    if record["type"] == "message":
        return (
            type(message) is dict
            and "role" in message
            and any(key in message for key in _ONLY_MESSAGES)
        )
    return _FIELDS.get(record["type"], "") in record


def _session(record: Any) -> str | None:
    if _accepts(record) and record["type"] == "session":
        return text_or_none(record, "id")
    return None


_SUMMED_UP = (
    "The conversation history before this point was compacted into the following"
    " summary:\n\n<summary>\n{}\n</summary>"
)
_CAME_BACK = (
    "The following is a summary of a branch that this conversation came back"
    " from:\n\n<summary>\n{}</summary>"
)
"""pi puts a summary for its model into the text ``_SUMMED_UP`` or ``_CAME_BACK``."""
_NO_RESULT = "No result provided"
"""The result that pi sends its model, before the next message, for a call without a result."""
_SUMMARY = -1
"""The tag of the event of a compaction. It is less than the number of any record."""
_PROMPT = 2**63
"""The tag of a system message. It is more than the number of any record."""
_NOT_SENT = ("error", "aborted")
_ENVELOPE = ("type", "id", "parentId", "timestamp")


class _Place(NamedTuple):
    number: int
    version: int
    above: _Place | None


_BEFORE = _Place(-1, 0, None)
"""The place of an entry before the window of a decoder that continues."""


class PiDecoder(FollowingDecoder):
    """The View shows the branch of the newest entry. Each shown event is tagged with the number of
    its entry. A compaction of pi never keeps an earlier summary, and always keeps system messages.
    """

    has_own_ids = True
    continues = True

    def set_up(self) -> None:
        self._places: dict[str, _Place] = {}
        self._newest: _Place | None = None
        self._count = 0
        self._newest_calls = NewestCalls()

    def facts(self) -> Facts:
        return {"count": self._count, "has_open_calls": self._newest_calls.is_open}

    def restore(self, facts: Facts) -> None:
        self._newest = _BEFORE

    def restore_after(self, facts: Facts) -> None:
        self._count = facts["count"]
        if facts.get("has_open_calls") and not self._newest_calls.is_open:
            self._newest_calls.begin_before_window()

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        self._newest_calls.follow(event)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        above = self._follow(record)
        kind = record["type"]
        collected.tag = _SUMMARY if kind == "compaction" else self._count
        if above is not self._newest:
            self._newest_calls = NewestCalls()
            collected.add(Retraction, version=0 if above is None else above.version)
        if kind == "context_edit":
            self.past.needs_all()
        message = record.get("message")
        if kind != "message" or type(message) is not dict:
            message = record
        collected.shown = message.get("stopReason") not in _NOT_SENT and not message.get(
            "excludeFromContext"
        )
        cost = within(message, "usage", "cost", "total")
        collected.tell(
            message.get("model"),
            cost or None,  # pi stores 0 for a model whose price it does not know
            message.get("usage"),
            prompt_tokens=("input", "cacheWrite", "cacheRead"),
            cached_tokens="cacheRead",
            cache_write_tokens="cacheWrite",
            completion_tokens="output",
        )
        if "usage" in collected.meta and message.get("stopReason") in _NOT_SENT:
            # Anthropic's server reports the tokens at the beginning and at the end of a reply, so
            # the tokens of an aborted reply are only the tokens at its beginning
            collected.meta["begun"] = True
        if kind == "session_info" and (named := text_or_none(message, "name")):
            collected.meta["title"] = named
        if kind == "message" and message.get("role") in ("user", "assistant") and collected.shown:
            self.supply_results(collected, self._newest_calls, _NO_RESULT)
            self._newest_calls = NewestCalls()
        self._read_message(collected, kind, message, above)
        collected.close(kind, omit(record, *_ENVELOPE))
        if kind != "session":
            self._newest = _Place(self._count, collected.version, above)
            if type(record.get("id")) is str:
                self._places[record["id"]] = self._newest
        self._count += 1

    def _follow(self, record: Fields) -> _Place | None:
        """Return the place of the entry that ``record`` follows, or None if ``record`` begins a new
        tree.
        """
        has_no_parent = "parentId" in record and record["parentId"] is None
        if has_no_parent and self._newest is not None and type(record.get("id")) is str:
            return None
        parent = text_or_none(record, "parentId")
        if parent is not None and parent not in self._places:
            self.past.needs_all()
        place = self._newest if parent is None else self._places.get(parent, self._newest)
        if place is _BEFORE:
            self.past.needs_all()
        return place

    def _read_message(
        self, collected: RecordEvents, kind: str, message: Fields, above: _Place | None
    ) -> None:
        source: Source = "environment"
        content = message.get("content")
        summary = message.get("summary")
        match message.get("role") if kind == "message" else kind:
            case "system":
                sections = filter(None, dict_or_empty(message, "sections").values())
                collected.tag = _PROMPT
                event = spoken(
                    "system", content_of_parts([*shown_blocks(content), *shown_blocks([*sections])])
                )
                tools = [
                    {"type": "function", "function": tool}
                    for tool in dicts_in(message, "toolsAdded")
                ]
                collected.take(replace(event, tools=tuple(tools)))
            case "context_edit" if edited := self._places.get(str(message.get("targetId"))):
                words = content_of_parts(shown_blocks(within(message, "replacement", "content")))
                collected.tag = edited.number
                if collected.tag in (numbers := self.shown.tags()):
                    place = numbers.index(collected.tag)
                    collected.condense(
                        collected.tag.__ne__, "\n".join(texts_of(words)), offset=place
                    )
            case "compaction" if type(summary) is str:
                self._read_compaction(collected, message, above)
            case "toolResult":
                result = content if type(content) is str else tuple(shown_blocks(content))
                failed = message.get("isError") is True
                call_id = message.get("toolCallId")
                collected.answer(call_id, result, is_error=failed, tool=message.get("toolName"))
                self._newest_calls.answer(call_id)
            case "assistant":
                source = "agent"
                self._read_response(collected, message)
            case "user" | "custom" | "hookMessage" | "custom_message" as role:
                if role == "user":
                    source = "user"
                collected.parts += shown_blocks(content)
            case "bashExecution":
                collected.parts += shown_blocks(_ran(message))
            case "branch_summary" | "branchSummary" if summary:
                collected.parts += shown_blocks(_CAME_BACK.format(summary))
            case "compactionSummary" if summary:
                collected.parts += shown_blocks(_SUMMED_UP.format(summary))
        collected.say(source, as_text=source == "agent" or type(content) is not list)

    def _read_response(self, collected: RecordEvents, message: Fields) -> None:
        is_signed = "anthropic" in text_or_empty(message, "api")
        content = message.get("content")
        blocks: list[Any] = content if type(content) is list else [content]
        for block in blocks:
            if kind_of(block) == "thinking":
                collected.thinking.append(_thinking(block, is_signed=is_signed))
            elif kind_of(block) == "toolCall":
                call = collected.call(block.get("name"), block.get("arguments"), block.get("id"))
                if call.shown:
                    self._newest_calls.call(call)
            else:
                collected.parts += shown_blocks(block)

    def _read_compaction(
        self, collected: RecordEvents, record: Fields, above: _Place | None
    ) -> None:
        """Forget the entries before the first entry that pi keeps. If the first kept entry is not
        on the branch, forget all entries.
        """
        named = record.get("firstKeptEntryId")
        number = record.get("firstKeptEntryIndex")
        if type(named) is str and named in self._places:
            number = self._places[named].number
        place = above
        while place is not None and place.number != number:
            place = place.above
        first = self._count if place is None else place.number
        if type(tokens := record.get("tokensBefore")) is int:
            tokens = {"tokens_before": tokens}
        else:
            tokens = {}
        numbers = [number for number in self.shown.tags() if number >= first]
        others = (place for place, number in enumerate(numbers) if number != _PROMPT)
        prompts = next(others, len(numbers))
        collected.tag = _SUMMARY
        collected.condense(
            first.__le__, _SUMMED_UP.format(record["summary"]), tokens, offset=prompts
        )


def _thinking(block: Fields, *, is_signed: bool) -> Fields:
    """Return a block of thinking. Without ``is_signed``, its signature is left out."""
    if is_signed:
        signature = text_or_empty(block, "thinkingSignature")
    else:
        signature = ""
    if is_signed and block.get("redacted") is True:
        redacted = signature
    else:
        redacted = None
    return thinking_of(text_or_empty(block, "thinking"), signature or None, redacted)


def _ran(message: Fields) -> str:
    """Return the text that pi sends to its model about a command of the user."""
    output = message.get("output")
    code = message.get("exitCode")
    text = f"Ran `{text_or_empty(message, 'command')}`\n" + (
        f"```\n{output}\n```" if output else "(no output)"
    )
    if message.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif code:
        text += f"\n\nCommand exited with code {code}"
    if message.get("truncated") and message.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {message['fullOutputPath']}]"
    return text


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="an entry with a text under 'type'",
    decoder=PiDecoder,
    conversation=first_named(_session),
    kept_in=("~/.pi/agent/sessions", "~/.openclaw/agents"),
    source_id=member("id"),
)
