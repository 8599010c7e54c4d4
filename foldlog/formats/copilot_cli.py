"""Sessions of Copilot CLI: lines of ``session-state/ID/events.jsonl``.

    {"type": "user.message", "data": {…}, "id": …, "timestamp": …, "parentId": …}

The types, and the events that they become:

    system.message                  SystemMessage that replaces the last system prompt; an equal
                                    prompt is not shown
    user.message                    Message with the text for the model (``transformedContent``).
                                    The text of the user in the first message is the title. A
                                    message with a ``source`` comes from the environment
    system.notification             Message from the environment
    assistant.message               Message, or an Action for each call; the text is the thought of
                                    the first call
    tool.execution_complete         Observation with the text for the model (``result.content``),
                                    shown if its call is open
    session.compaction_complete     CondensationAction that forgets the records that were shown
                                    when the compaction began
    session.truncation              CondensationAction that forgets the oldest messages, without a
                                    summary
    session.context_cleared         CondensationAction that forgets all events except the system
                                    prompt; then a Message if the record has an
                                    ``initialMessage``
    every other type                Annotation

A View does not show events of sub-agents (``agentId``, ``parentToolCallId``). If a user goes back
to an earlier message, Copilot CLI cuts its file there. The code of Copilot CLI is not public, so
two rules were inferred from its events: a compaction keeps the records that came after the
compaction began, and a truncation removes the oldest messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    Content,
    Event,
    Message,
    SystemMessage,
)
from foldlog.eventstore.usage import count_of, usage_of
from foldlog.formats.blocks import shown_blocks, thinking_of
from foldlog.formats.event_fields import data_url, file_at, text_part
from foldlog.formats.format import Format, first_named
from foldlog.formats.json_text import key_of
from foldlog.formats.model_calls import (
    CallsReader,
    CallsTakenBack,
    ModelCall,
    RecordedUsage,
    call_of_event,
    calls_of_replies,
    model_named,
)
from foldlog.formats.open_calls import NewestCalls
from foldlog.formats.prompt_changes import change_of_prompt
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    has,
    member,
    text_or_empty,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts

NAME = "copilot-cli"

_KINDS = frozenset(
    (
        "session",
        "user",
        "assistant",
        "tool",
        "system",
        "subagent",
        "hook",
        "skill",
        "abort",
        "permission",
    )
)
_IN_WORDS = ("file", "directory", "selection", "github_reference", "omitted")
"""Types of attachments that the text for the model already describes."""
_SYSTEM = "system"
"""The decoder tags system prompts with this text, and every other shown event with the id of its
record.
"""

_NO_RESULT = "The execution of this tool, or a previous tool was interrupted."
"""The result that Copilot CLI sends its model, before the next reply, for a call without a result.
"""
_SIZES = {"preCompactionTokens": "tokens_before", "postCompactionTokens": "tokens_after"}


_accepts = has(type=str, data=dict)
_is_event = has(type=str, data=dict, id=str, timestamp=str)


def _matches(record: Any) -> bool:
    return _is_event(record) and "parentId" in record and record["type"].partition(".")[0] in _KINDS


def _session(record: Any) -> str | None:
    is_start = _accepts(record) and record["type"] == "session.start"
    if is_start:
        return text_or_empty(record["data"], "sessionId") or None
    return None


def _where(record: Any) -> Fields:
    data = dict_or_empty(record, "data")
    context = dict_or_empty(data, "context")
    return {"cwd": context.get("cwd"), "branch": context.get("branch"), "model": data.get("model")}


class CopilotDecoder(FollowingDecoder):
    """Tags each shown event with the id of its record, or with ``_SYSTEM``."""

    has_own_ids = True
    continues = True
    repeated = ("data.result.detailedContent",)

    def set_up(self) -> None:
        self._prompt: int | None = None
        """The key of the last system prompt."""
        self._prompt_id: int | None = None
        self._is_named = False
        self._begun: set[str] | None = None
        self._newest_calls = NewestCalls()

    def facts(self) -> Facts | None:
        if self._begun is not None:
            return None
        return {
            "prompt": self._prompt,
            "prompt_id": self._prompt_id,
            "is_named": self._is_named,
            "open_calls": self._newest_calls.open_count,
        }

    def restore_after(self, facts: Facts) -> None:
        self._prompt = facts["prompt"]
        self._prompt_id = facts["prompt_id"]
        self._is_named = facts["is_named"]
        self._begun = None
        # the window may begin in the middle of a response
        if facts.get("open_calls", 0) > len(self._newest_calls.open):
            self._newest_calls.begin_before_window()

    def tag(self, event: Event, collected: RecordEvents) -> str:
        return _SYSTEM if isinstance(event, SystemMessage) else str(collected.origin.id)

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        self._newest_calls.follow(event)
        if isinstance(event, CondensationAction):
            self._follow_condensation(event)
        elif isinstance(event, Message) and event.source == "user" and event.shown:
            self._is_named = True
        elif isinstance(event, SystemMessage) and event.shown and self._prompt_id is None:
            self._prompt_id = event.id
            self._prompt = None

    def _follow_condensation(self, event: CondensationAction) -> None:
        """Follow a stored condensation: of a compaction, of forgotten messages, or of a replaced
        system prompt.
        """
        forgotten = event.forgotten_event_ids or ()
        if self._prompt_id in forgotten:
            self._prompt_id = None
        else:
            self._newest_calls = NewestCalls()
        if event.summary:
            self._begun = None

    def read(self, collected: RecordEvents, record: Fields) -> None:
        kind = record["type"]
        data = record["data"]
        collected.shown = (
            type(record.get("agentId")) is not str and type(data.get("parentToolCallId")) is not str
        )
        content = text_or_empty(data, "content")
        match kind:
            case "system.message" if content:
                self._read_prompt(collected, data, content)
            case "user.message":
                model_text = text_or_empty(data, "transformedContent") or content
                is_automatic = (
                    type(data.get("source")) is str or data.get("isAutopilotContinuation") is True
                )
                if message_text := _with_files(model_text, data.get("attachments")):
                    if content and not self._is_named and collected.shown and not is_automatic:
                        self._is_named = True
                        collected.meta = {"title": content}
                    collected.add(
                        Message,
                        content=message_text,
                        source="environment" if is_automatic else "user",
                    )
            case "system.notification" if content:
                collected.add(Message, content=content, source="environment")
            case "assistant.message":
                self._read_response(collected, data, content)
            case "tool.execution_complete":
                self._read_result(collected, data)
            case "session.compaction_start" if collected.shown:
                self._begun = {*self._shown_records()}
            case (
                "session.compaction_complete" | "session.truncation" | "session.context_cleared"
            ) if collected.shown:
                self._condense(collected, kind, data)
        if kind == "session.title_changed" and (name := text_or_empty(data, "title")):
            collected.meta = {"title": name}
        collected.close(kind, data)

    def _read_prompt(self, collected: RecordEvents, data: Fields, content: str) -> None:
        """Add a system prompt in place of the last system prompt. A prompt with the role
        ``developer`` is added without replacing a prompt.
        """
        key = key_of(content)
        is_new = collected.shown and data.get("role") != "developer" and key != self._prompt
        if is_new and self._prompt_id is not None:
            collected.put(change_of_prompt([self._prompt_id], [], "system prompt"))
        prompt = collected.add(
            SystemMessage, content=content, shown=collected.shown and key != self._prompt
        )
        if is_new:
            self._prompt = key
            self._prompt_id = prompt.id

    def _read_result(self, collected: RecordEvents, data: Fields) -> None:
        """Add the result of a call, or a hidden result if its call is not open."""
        error = data.get("error")
        fields = dict_or_empty(data, "result")
        content = _with_files(text_or_empty(fields, "content"), fields.get("binaryResultsForLlm"))
        failed = data.get("success") is False
        if failed and not content and type(error) is dict:
            content = text_or_empty(error, "message")
        # a result without a call comes from a tool of the user, and the model does not see it
        collected.shown = collected.shown and self.calls.is_open(data.get("toolCallId"))
        collected.answer(data.get("toolCallId"), content, is_error=failed)
        if collected.shown:
            self._newest_calls.answer(data.get("toolCallId"))

    def _read_response(self, collected: RecordEvents, data: Fields, content: str) -> None:
        calls = dicts_in(data, "toolRequests")
        ids = (data.get("apiCallId"), data.get("messageId"))
        named = (value for value in ids if type(value) is str)
        collected.response = next(named, f"response-{collected.version}")
        if collected.shown and self._newest_calls.response not in (None, collected.response):
            self.supply_results(collected, self._newest_calls, _NO_RESULT)
            self._newest_calls = NewestCalls()
        collected.parts = [text_part(content)] if content else []
        if text := text_or_empty(data, "reasoningText"):
            collected.thinking = [thinking_of(text)]
        collected.meta = usage_meta(
            {"completion_tokens": data.get("outputTokens")}, model=data.get("model")
        )
        for fields in calls:
            call = collected.call(
                fields.get("name"), fields.get("arguments"), fields.get("toolCallId")
            )
            if call.shown:
                self._newest_calls.call(call)
        collected.say("agent")

    def _shown_records(self) -> list[str]:
        return [record_id for record_id in self.shown.tags() if record_id != _SYSTEM]

    def _condense(self, collected: RecordEvents, kind: str, data: Fields) -> None:
        records = self._shown_records()
        match kind:
            case "session.compaction_complete":
                shown_at_begin = self._begun
                self._begun = None
                summary = text_or_empty(data, "summaryContent")
                if data.get("success") is not True or not summary:
                    return
                forgotten = {*records}
                if shown_at_begin is not None:
                    forgotten &= shown_at_begin
                is_requested = data.get("customInstructions") or data.get("trigger") == "manual"
                self._forget(
                    collected, data, forgotten, summary, "request" if is_requested else "tokens"
                )
            case "session.truncation":
                count = data.get("messagesRemovedDuringTruncation")
                if type(count) is int and count > 0:
                    oldest_first = list(dict.fromkeys(records))
                    self._forget(collected, data, {*oldest_first[:count]}, "", "tokens")
            case "session.context_cleared" if records:
                self._forget(collected, data, {*records}, "", "tokens")
                if first := text_or_empty(data, "initialMessage"):
                    collected.add(Message, content=first, source="user")

    def _forget(
        self, collected: RecordEvents, data: Fields, forgotten: set[str], summary: str, reason: str
    ) -> None:
        """Add a condensation that forgets the records ``forgotten``, unless ``forgotten`` is empty.
        The summary comes after the system prompts at the beginning.
        """
        if not forgotten:
            return
        self._newest_calls = NewestCalls()
        record_ids = self.shown.tags()
        offset = next(
            (index for index, record_id in enumerate(record_ids) if record_id != _SYSTEM),
            len(record_ids),
        )
        metadata: Fields = {"reason": reason}
        for key, name in _SIZES.items():
            if type(data.get(key)) is int:
                metadata[name] = data[key]
        collected.condense(
            lambda record_id: record_id not in forgotten, summary, metadata, offset=offset
        )


def _with_files(text: str, attachments: Any) -> Content:
    """Return a text with its attachments. Attachments that the text already describes are left out,
    unless they hold the bytes of a file.
    """
    parts: list[Fields] = []
    for attachment in dicts_in(attachments):
        data = attachment.get("data")
        kind = attachment.get("mimeType")
        if type(data) is str and type(kind) is str:
            parts.append(file_at(data_url(kind, data), kind))
        elif attachment.get("type") not in _IN_WORDS:
            parts += shown_blocks(attachment)
    return (*shown_blocks(text), *parts) if parts else text


_COUNTS = {
    "prompt_tokens": "input",
    "cached_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
    "completion_tokens": "output",
}


class CopilotCalls(CallsReader):
    """Reads the calls of models. A record ``session.usage_record`` has the tokens of one call.
    Earlier releases only wrote ``session.shutdown`` at the end of a session, with the number of
    calls and tokens of each model. Replies after this record, for example in a resumed session, are
    counted one by one.

    ``is_recorded``  whether there was a ``session.usage_record``
    ``has_replies``  whether replies since the last ``session.shutdown`` were counted one by one
    """

    is_recorded: bool = False
    has_replies: bool = False

    def calls(self, events: Iterable[Event]) -> Iterator[ModelCall]:
        replies: list[Event] = []
        for event in events:
            kind, data = (event.name, event.data) if isinstance(event, Annotation) else ("", None)
            metrics = dict_or_empty(data, "modelMetrics") if kind == "session.shutdown" else {}
            if kind == "session.usage_record":
                yield from calls_of_replies(replies)
                replies.clear()
                self.is_recorded = True
                self.has_replies = False
                used = dict_or_empty(data, "usage")
                yield call_of_event(event, model_named(used), _tokens_of(used))
            elif self.is_recorded:
                continue
            elif not metrics:
                replies.append(event)
            else:
                if self.has_replies:
                    raise CallsTakenBack
                replies.clear()
                yield from _calls_until_shutdown(event, metrics)
        for call in calls_of_replies(replies):
            self.has_replies = True
            yield call


def _calls_until_shutdown(event: Event, metrics: JsonMap) -> Iterator[ModelCall]:
    """Yield the calls of each model in a ``session.shutdown``."""
    for model, counts_of_model in metrics.items():
        count = count_of(within(counts_of_model, "requests", "count")) or 0
        tokens = _tokens_of(dict_or_empty(counts_of_model, "usage"))
        yield call_of_event(event, model, tokens, None, count, model)


def _tokens_of(counts: JsonMap) -> dict[str, int]:
    return usage_of({name: counts.get(f"{source}Tokens") for name, source in _COUNTS.items()})


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="an event of Copilot CLI, with a text under 'type' and an object under 'data'",
    decoder=CopilotDecoder,
    conversation=first_named(_session),
    recorded_usage=RecordedUsage(reader=CopilotCalls),
    kept_in=("$COPILOT_HOME/session-state", "~/.copilot/session-state"),
    source_id=member("id"),
    where=_where,
)
