"""Copilot CLI: the events of a session, lines of ``session-state/ID/events.jsonl``.

    {"type": "user.message", "data": {…}, "id": …, "timestamp": …, "parentId": …}

The types, and the events that they become:

    system.message                  SystemMessage in the place of the last; if it repeats that, it is not shown
    user.message                    Message with the words that the model was sent (``transformedContent``); the first
                                    has what the user wrote as the title. It is the environment's with a ``source``
    system.notification             Message from the environment
    assistant.message               Message, or an Action for each call; the text is the thought of the first of them
    tool.execution_complete         Observation with the words for the model (``result.content``), if its call is known
    session.compaction_complete     CondensationAction of what was shown when the compaction began
    session.truncation              CondensationAction of the oldest messages, without a summary
    session.context_cleared         CondensationAction of all but the system prompt; a first message may follow
    every other type                Annotation

Events of sub-agents (``agentId``, ``parentToolCallId``) are kept and not shown. Copilot CLI cuts its file where a user
goes back, so a session grows by ``Format.rewritten``. No code of Copilot CLI is public: that what comes after the begin
of a compaction is kept, and that a truncation takes the oldest messages, is read from its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.calls import OpenCalls
from foldlog._formats.format import LOOK_AT, EachAlone, Format, Options, RecordDecoder
from foldlog._formats.members import Members
from foldlog._formats.record import (
    NotAnEvent,
    described,
    dicts_in,
    joined_text,
    read_time,
    text_or_empty,
    time_text,
    usage_told,
)
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationSummary,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    SystemMessage,
)

NAME = "copilot-cli"

_KINDS = frozenset(
    ("session", "user", "assistant", "tool", "system", "subagent", "hook", "skill", "abort", "permission")
)
"""The first words of the types."""
_SYSTEM = "system"
"""What a View remembers of a system prompt, beside the ids of other records."""

_Part = dict[str, Any]


def _accepts(record: Any) -> bool:
    return type(record) is dict and type(record.get("type")) is str and type(record.get("data")) is dict


def _matches(record: Any) -> bool:
    """Return whether a record has a type of Copilot CLI, and its place in the chain of events."""
    is_event = _accepts(record) and "parentId" in record and type(record.get("timestamp")) is str
    return is_event and type(record.get("id")) is str and record["type"].partition(".")[0] in _KINDS


def _conversation(records: Iterable[Any]) -> str | None:
    starts = (each["data"] for each in islice(records, LOOK_AT) if _accepts(each) and each["type"] == "session.start")
    return next((name for data in starts if type(name := data.get("sessionId")) is str and name), None)


class CopilotDecoder(RecordDecoder):
    """Records of one session to events, one record after the other."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls = OpenCalls()
        self._shown = Members[Any]()
        self._prompt: str | None = None
        self._prompt_id: int | None = None
        self._is_named = False
        self._begun: frozenset[int] | None = None
        """What was shown when a compaction began."""
        self._events: list[Event] = []
        self._common: _Part = {}
        self._origin: Origin | None = None

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent`` where it has no type or no data."""
        if not _accepts(record):
            found = "an object without them" if type(record) is dict else described(record)
            raise NotAnEvent(
                f"an event of Copilot CLI has a text under 'type' and an object under 'data', found {found}"
            )
        kind, data = record["type"], record["data"]
        timestamp, time = read_time(record.get("timestamp"))
        self._events, self._common = [], {"timestamp": timestamp}
        self._origin = Origin(format=NAME, id=record.get("id"), time=time)
        is_side = type(record.get("agentId")) is str or type(data.get("parentToolCallId")) is str
        self._read(kind, data, {"shown": False} if is_side else {})
        if not self._events:
            name = data.get("title") if kind == "session.title_changed" else None
            self._add(Annotation, name=kind, data=data, meta={"title": name} if type(name) is str and name else {})
        for event in self._events:
            self._shown.follow(event, _SYSTEM if isinstance(event, SystemMessage) else record.get("id"))
        self.next_id += len(self._events)
        return self._events

    def _add(self, kind: Any, **fields: Any) -> Any:
        origin = Origin(format=NAME) if self._events else self._origin
        event = kind(id=self.next_id + len(self._events), origin=origin, **self._common, **fields)
        self._events.append(event)
        return event

    def _read(self, kind: str, data: _Part, side: _Part) -> None:
        content = text_or_empty(data.get("content"))
        match kind:
            case "system.message" if content:
                self._add_prompt(data, content, side)
            case "user.message":
                sent = text_or_empty(data.get("transformedContent")) or content
                if said := _with_images(sent, data.get("attachments")):
                    is_told = type(data.get("source")) is str or data.get("isAutopilotContinuation") is True
                    message = self._add(Message, content=said, source="environment" if is_told else "user", **side)
                    if content and not self._is_named and message.shown and not is_told:
                        self._is_named = True
                        force_setattr(message, "meta", {"title": content})  # no other code has it before it is returned
            case "system.notification" if content:
                self._add(Message, content=content, source="environment", **side)
            case "assistant.message":
                self._add_response(data, content, side)
            case "tool.execution_complete":
                self._add_result(data, side)
            case "session.compaction_start" if not side:
                self._begun = self._conversation()
            case "session.compaction_complete" | "session.truncation" | "session.context_cleared" if not side:
                self._condense(kind, data)

    def _add_prompt(self, data: _Part, content: str, side: _Part) -> None:
        """Add a prompt, which takes the place of the one before it; a developer's comes beside it."""
        if side or data.get("role") == "developer" or content == self._prompt:
            self._add(SystemMessage, content=content, **side or {"shown": content != self._prompt})
            return
        if self._prompt_id is not None:
            self._add(CondensationAction, forgotten_event_ids=(self._prompt_id,), metadata={"reason": "request"})
        self._prompt, self._prompt_id = content, self._add(SystemMessage, content=content).id

    def _add_response(self, data: _Part, content: str, side: _Part) -> None:
        calls = dicts_in(data.get("toolRequests"))
        text = text_or_empty(data.get("reasoningText"))
        thinking: _Part = {"thinking": ({"type": "thinking", "thinking": text},) if text else ()}
        named = (data.get("apiCallId"), data.get("messageId"))
        response_id = next((each for each in named if type(each) is str), f"response-{self.next_id}")
        if not calls and content:
            self._add(Message, content=content, source="agent", **thinking, **side)
        for call in calls:
            call_id, given = call.get("toolCallId"), call.get("arguments")
            action = self._add(
                Action, tool=text_or_empty(call.get("name")), response_id=response_id, thought=content,
                arguments=given if type(given) is dict or type(given) is str else None,
                call_id=call_id if type(call_id) is str else None, **thinking, **side,
            )  # fmt: skip
            content, thinking = "", {}
            self._calls.open(action)
        counts = {"completion_tokens": data.get("outputTokens")}
        if self._events and (used := usage_told(counts, model=data.get("model"))):
            force_setattr(self._events[0], "meta", used)  # as above

    def _add_result(self, data: _Part, side: _Part) -> None:
        result, error = data.get("result"), data.get("error")
        call_id, cause, tool = self._calls.close(data.get("toolCallId"))
        told = result if type(result) is dict else {}
        content = _with_images(text_or_empty(told.get("content")), told.get("binaryResultsForLlm"))
        failed = data.get("success") is False
        if failed and not content and type(error) is dict:
            content = text_or_empty(error.get("message"))
        shown = side or ({} if cause is not None else {"shown": False})  # one that the user asked for has no call
        self._add(Observation, content=content, tool=tool, call_id=call_id, cause=cause, is_error=failed, **shown)

    def _conversation(self) -> frozenset[int]:
        return frozenset(event_id for event_id, known in self._shown.all() if known != _SYSTEM)

    def _condense(self, kind: str, data: _Part) -> None:
        gone, summary, reason = self._conversation(), "", "tokens"
        if kind == "session.compaction_complete":
            begun, self._begun = self._begun, None
            summary = text_or_empty(data.get("summaryContent"))
            if data.get("success") is not True or not summary:
                return
            gone = gone if begun is None else gone & begun
            reason = "request" if data.get("customInstructions") or data.get("trigger") == "manual" else "tokens"
        elif kind == "session.truncation":
            count = data.get("messagesRemovedDuringTruncation")
            records = [known for _, known in self._shown.all() if known != _SYSTEM]
            oldest = list(dict.fromkeys(map(str, records)))[: count if type(count) is int and count > 0 else 0]
            gone = frozenset(each for each, known in self._shown.all() if known != _SYSTEM and str(known) in oldest)
        if not gone:
            return
        members = self._shown.all()
        offset = next((place for place, (_, known) in enumerate(members) if known != _SYSTEM), len(members))
        told: _Part = {"summary": summary, "summary_offset": offset} if summary else {}
        ids = tuple(event_id for event_id, _ in members if event_id in gone)
        sizes = {"preCompactionTokens": "tokens_before", "postCompactionTokens": "tokens_after"}
        metadata = {name: data[key] for key, name in sizes.items() if type(data.get(key)) is int}
        self._add(CondensationAction, forgotten_event_ids=ids, metadata={"reason": reason, **metadata}, **told)
        if kind == "session.context_cleared" and (first := text_or_empty(data.get("initialMessage"))):
            self._add(Message, content=first, source="user")


def _with_images(text: str, held: Any) -> Content:
    """Return a text with the images that are held beside it in full."""
    images: list[_Part] = []
    for each in dicts_in(held):
        data, kind = each.get("data"), each.get("mimeType")
        if type(data) is str and type(kind) is str and kind.startswith("image/"):
            images.append({"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}})
    return ({"type": "text", "text": text}, *images) if images else text


class CopilotEncoder(EachAlone):
    """Events of one history to lines of a session, each after the line before it."""

    def __init__(self) -> None:
        super().__init__(self._lines)
        self._last: Any = None

    def follow(self, events: Sequence[Event], record: Any) -> None:
        self._last = record.get("id") if type(record) is dict else self._last

    def _lines(self, event: Any) -> list[_Part]:
        lines = [self._line(event, *each) for each in _written(event)]
        if self._last is None:
            start = {"sessionId": "foldlog", "version": 1, "producer": "foldlog", "copilotVersion": "", "startTime": ""}
            lines = [{**self._line(event, "session.start", start), "id": "foldlog-start"}, *lines]
            lines[1]["parentId"] = "foldlog-start"
        self._last = lines[-1]["id"]
        return lines

    def _line(self, event: Event, kind: str, data: _Part) -> _Part:
        at = time_text(event.timestamp, event.origin) or "1970-01-01T00:00:00.000Z"
        return {"type": kind, "data": data, "id": f"foldlog-{event.id}", "timestamp": at, "parentId": self._last}


def _written(event: Any) -> list[tuple[str, _Part]]:
    match event:
        case Action():
            call = {"toolCallId": event.call_id or f"call_{event.id}", "name": event.tool, "arguments": event.arguments}
            said = {"messageId": f"foldlog-{event.id}", "content": joined_text(event.thought), "toolRequests": [call]}
            return [("assistant.message", said)]
        case Observation():
            call_id, text = event.call_id or f"call_{event.cause}", joined_text(event.content)
            outcome: _Part = {"error": {"message": text}} if event.is_error else {"result": {"content": text}}
            return [("tool.execution_complete", {"toolCallId": call_id, "success": not event.is_error, **outcome})]
        case SystemMessage():
            return [("system.message", {"role": "system", "content": joined_text(event.content)})]
        case Message(source="agent"):
            said = {"messageId": f"foldlog-{event.id}", "content": joined_text(event.content)}
            return [("assistant.message", said)]
        case Message() | CondensationSummary():
            urls = [
                str(part["image_url"].get("url"))
                for part in event.content
                if type(part) is dict and "image_url" in part
            ]
            blobs = [url.removeprefix("data:").partition(";base64,") for url in urls]
            held = [{"type": "blob", "mimeType": kind, "data": data} for kind, _, data in blobs if data]
            return [("user.message", {"content": joined_text(event.content), "attachments": held})]
    return []


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    decoder=lambda records, options: CopilotDecoder(options),
    encoder=CopilotEncoder,
    conversation=_conversation,
    rewritten=True,
    kept_in=("$COPILOT_HOME/session-state", "~/.copilot/session-state"),
    source_id=lambda record: record.get("id") if type(record) is dict else None,
)
