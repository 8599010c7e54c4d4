"""Copilot CLI: the events of a session, lines of ``session-state/ID/events.jsonl``.

    {"type": "user.message", "data": {…}, "id": …, "timestamp": …, "parentId": …}

The types, and the events that they become:

    system.message                  SystemMessage in the place of the last; if it repeats that, it
                                    is not shown
    user.message                    Message with the words that the model was sent
                                    (``transformedContent``); the first
                                    has what the user wrote as the title. It is the environment's
                                    with a ``source``
    system.notification             Message from the environment
    assistant.message               Message, or an Action for each call; the text is the thought of
                                    the first of them
    tool.execution_complete         Observation with the words for the model (``result.content``),
                                    if its call is known
    session.compaction_complete     CondensationAction of what was shown when the compaction began
    session.truncation              CondensationAction of the oldest messages, without a summary
    session.context_cleared         CondensationAction of all but the system prompt; a first message
                                    may follow
    every other type                Annotation

Events of sub-agents (``agentId``, ``parentToolCallId``) are kept and not shown. Copilot CLI cuts
its file where a user goes back, so a session grows by ``Format.rewritten``. No code of Copilot CLI
is public: that what comes after the begin of a compaction is kept, and that a truncation takes the
oldest messages, is read from its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from foldlog._formats.blocks import said_in, thinking_of
from foldlog._formats.event_fields import (
    data_url,
    file_at,
)
from foldlog._formats.format import Format, Options, first_named
from foldlog._formats.record import (
    dict_or_empty,
    dicts_in,
    has,
    member,
    text_or_empty,
    usage_told,
    within,
)
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog._formats.usage import ModelCall, ToldUsage, call_told_by, calls_of_replies, inner
from foldlog._prompt_changes import change_of_prompt
from foldlog._usage import usage_of
from foldlog.eventstore import Annotation, Content, Event, Message, SystemMessage

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
"""The first words of the types."""
_IN_WORDS = ("file", "directory", "selection", "github_reference", "omitted")
"""The types of attachments that the model is told of in words."""
_SYSTEM = "system"
"""What a View remembers of a system prompt, beside the ids of other records."""

_Part = dict[str, Any]


_accepts = has(type=str, data=dict)
_is_event = has(type=str, data=dict, id=str, timestamp=str)


def _matches(record: Any) -> bool:
    """Return whether a record has a type of Copilot CLI, and its place in the chain of events."""
    return _is_event(record) and "parentId" in record and record["type"].partition(".")[0] in _KINDS


def _session(record: Any) -> str | None:
    is_start = _accepts(record) and record["type"] == "session.start"
    if is_start:
        return text_or_empty(record["data"].get("sessionId")) or None
    return None


def _where(record: Any) -> _Part:
    """Return the folder and the branch of a session, and the model of an answer."""
    data = dict_or_empty(within(record, "data"))
    context = dict_or_empty(data.get("context"))
    return {"cwd": context.get("cwd"), "branch": context.get("branch"), "model": data.get("model")}


class CopilotDecoder(FollowingDecoder):
    """Records of one session to events. Of what is shown it knows the id of the record, or that it
    is a prompt.
    """

    has_own_ids = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._prompt: str | None = None
        self._prompt_id: int | None = None
        self._is_named = False
        self._begun: set[str] | None = None
        """The records that were shown when a compaction began."""

    def known(self, event: Event, read: RecordEvents | None) -> str:
        if isinstance(event, SystemMessage) or read is None:
            return _SYSTEM
        return str(read.origin.id)

    def read(self, read: RecordEvents, record: _Part) -> None:
        kind = record["type"]
        data = record["data"]
        read.shown = (
            type(record.get("agentId")) is not str and type(data.get("parentToolCallId")) is not str
        )
        content = text_or_empty(data.get("content"))
        match kind:
            case "system.message" if content:
                self._read_prompt(read, data, content)
            case "user.message":
                sent = text_or_empty(data.get("transformedContent")) or content
                is_told = (
                    type(data.get("source")) is str or data.get("isAutopilotContinuation") is True
                )
                if said := _with_files(sent, data.get("attachments")):
                    if content and not self._is_named and read.shown and not is_told:
                        self._is_named = True
                        read.meta = {"title": content}
                    read.add(Message, content=said, source="environment" if is_told else "user")
            case "system.notification" if content:
                read.add(Message, content=content, source="environment")
            case "assistant.message":
                _read_response(read, data, content)
            case "tool.execution_complete":
                self._read_result(read, data)
            case "session.compaction_start" if read.shown:
                self._begun = {*self._records()}
            case (
                "session.compaction_complete" | "session.truncation" | "session.context_cleared"
            ) if read.shown:
                self._condense(read, kind, data)
        if kind == "session.title_changed" and (name := text_or_empty(data.get("title"))):
            read.meta = {"title": name}
        read.close(kind, data)

    def _read_prompt(self, read: RecordEvents, data: _Part, content: str) -> None:
        """Add a prompt, which takes the place of the one before it; a developer's comes beside
        it.
        """
        is_new = read.shown and data.get("role") != "developer" and content != self._prompt
        if is_new and self._prompt_id is not None:
            read.put(change_of_prompt([self._prompt_id], [], "system prompt"))
        prompt = read.add(
            SystemMessage, content=content, shown=read.shown and content != self._prompt
        )
        if is_new:
            self._prompt = content
            self._prompt_id = prompt.id

    def _read_result(self, read: RecordEvents, data: _Part) -> None:
        result = data.get("result")
        error = data.get("error")
        told = result if type(result) is dict else {}
        content = _with_files(text_or_empty(told.get("content")), told.get("binaryResultsForLlm"))
        failed = data.get("success") is False
        if failed and not content and type(error) is dict:
            content = text_or_empty(error.get("message"))
        # one that the user asked for has none
        read.shown = read.shown and self.calls.is_open(data.get("toolCallId"))
        read.answer(data.get("toolCallId"), content, is_error=failed)

    def _records(self) -> list[str]:
        """Return the ids of the records that are shown, without prompts."""
        return [known for _, known in self.shown.all() if known != _SYSTEM]

    def _condense(self, read: RecordEvents, kind: str, data: _Part) -> None:
        records = self._records()
        summary = ""
        reason = "tokens"
        gone = {*records}
        if kind == "session.compaction_complete":
            begun = self._begun
            self._begun = None
            summary = text_or_empty(data.get("summaryContent"))
            if data.get("success") is not True or not summary:
                return
            gone &= gone if begun is None else begun
            if data.get("customInstructions") or data.get("trigger") == "manual":
                reason = "request"
            else:
                reason = "tokens"
        elif kind == "session.truncation":
            count = data.get("messagesRemovedDuringTruncation")
            gone = {
                *list(dict.fromkeys(records))[: count if type(count) is int and count > 0 else 0]
            }
        if not gone:
            return
        all_known = [known for _, known in self.shown.all()]
        offset = next(
            (place for place, known in enumerate(all_known) if known != _SYSTEM), len(all_known)
        )
        sizes = {"preCompactionTokens": "tokens_before", "postCompactionTokens": "tokens_after"}
        told = {name: data[key] for key, name in sizes.items() if type(data.get(key)) is int}
        read.condense(
            lambda known: known not in gone, summary, {"reason": reason, **told}, offset=offset
        )
        if kind == "session.context_cleared" and (
            first := text_or_empty(data.get("initialMessage"))
        ):
            read.add(Message, content=first, source="user")


def _read_response(read: RecordEvents, data: _Part, content: str) -> None:
    calls = dicts_in(data.get("toolRequests"))
    named = (data.get("apiCallId"), data.get("messageId"))
    read.response = next((each for each in named if type(each) is str), f"response-{read.version}")
    read.parts = [{"type": "text", "text": content}] if content else []
    if text := text_or_empty(data.get("reasoningText")):
        read.thinking = [thinking_of(text)]
    read.meta = usage_told({"completion_tokens": data.get("outputTokens")}, model=data.get("model"))
    for call in calls:
        read.call(call.get("name"), call.get("arguments"), call.get("toolCallId"))
    read.say("agent", as_text=True)


def _with_files(text: str, held: Any) -> Content:
    """Return a text with the files that are held beside it in full, and with what is neither that
    nor told in words.
    """
    parts: list[_Part] = []
    for each in dicts_in(held):
        data = each.get("data")
        kind = each.get("mimeType")
        if type(data) is str and type(kind) is str:
            parts.append(file_at(data_url(kind, data), kind))
        elif each.get("type") not in _IN_WORDS:
            parts += said_in(each)
    return (*said_in(text), *parts) if parts else text


_COUNTS = {
    "prompt_tokens": "input",
    "cached_tokens": "cacheRead",
    "cache_write_tokens": "cacheWrite",
    "completion_tokens": "output",
}


def _calls(events: Iterable[Event]) -> Iterator[ModelCall]:
    """Read what the end of a session counts; of replies that no end follows, the tokens that they
    have.
    """
    replies: list[Event] = []
    for event in events:
        is_end = isinstance(event, Annotation) and event.name == "session.shutdown"
        if isinstance(event, Annotation) and is_end:
            metrics = inner(event.data, "modelMetrics")
        else:
            metrics = {}
        if metrics:
            replies.clear()
        else:
            replies.append(event)
        for model, told in metrics.items():
            usage = inner(told, "usage")
            calls = inner(told, "requests").get("count")
            counts = {ours: usage.get(f"{theirs}Tokens") for ours, theirs in _COUNTS.items()}
            yield call_told_by(
                event, model, usage_of(counts), None, calls if type(calls) is int else 0, model
            )
    yield from calls_of_replies(replies)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="an event of Copilot CLI, with a text under 'type' and an object under 'data'",
    decoder=CopilotDecoder,
    conversation=first_named(_session),
    told_usage=ToldUsage(calls=_calls),
    kept_in=("$COPILOT_HOME/session-state", "~/.copilot/session-state"),
    source_id=member("id"),
    where=_where,
)
