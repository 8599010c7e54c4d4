"""Spans of OpenTelemetry's GenAI conventions, in the format of a collector: ``{"resourceSpans":
[…]}``. A file may have one such object per line.

A record is an object ``{"resourceSpans": […]}`` with one span, so a collector also accepts an
exported file. docs/IMPORTING.md says which spans are a history, where the messages of a span are,
and which fields of a message are read. The new messages and the reply of a span become these
events:

    system, user        SystemMessage, Message
    assistant           Message; an Action for each call
    tool                an Observation for each result
    compaction          CondensationAction: the part replaces all earlier messages except the system
                        prompt
    any other span      Annotation: a span of a tool, of an agent, or of a model without messages

``change_of_prompt`` finds the change between the prompts of two spans. The attribute
``gen_ai.conversation.compacted`` says that a change of the prompt was a compaction.

``spans.py`` finds the spans of a history and their messages. ``sent_messages.py`` compares the
messages that two spans sent. ``exports.py`` converts spans of Langfuse and Phoenix into this
format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from foldlog.eventstore import Annotation, CondensationAction, Content, Event, summary_id
from foldlog.formats.blocks import content_of_parts as content_of_parts, kind_of, shown_blocks
from foldlog.formats.event_fields import data_url, image_at, session_of, text_part
from foldlog.formats.event_places import is_declined
from foldlog.formats.format import Format, Options
from foldlog.formats.json_text import json_of, parse_text
from foldlog.formats.messages import ROLES, spoken
from foldlog.formats.openai_chat import OpenAIChatEncoder
from foldlog.formats.otlp_genai.exports import attributes_of, nanoseconds, request_with
from foldlog.formats.otlp_genai.sent_messages import (
    COMPACTED,
    SentMessage,
    alone,
    compact,
    effective,
    gist,
    is_compaction,
    parts_of,
    summary_in,
)
from foldlog.formats.otlp_genai.spans import (
    NAME,
    SpanFiles,
    Trace,
    TracedSpan,
    message_of,
    part_of,
    span_of,
)
from foldlog.formats.prompt_changes import Cause, change_of_prompt, staying
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    first_of,
    pick,
    text_or_empty,
    text_or_none,
    time_at,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

_USAGE = {
    "prompt_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    "completion_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "cache_write_tokens": (
        "gen_ai.usage.cache_creation.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    "reasoning_tokens": (
        "gen_ai.usage.reasoning.output_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
    "total_tokens": (
        "gen_ai.usage.total_tokens",
        "llm.usage.total_tokens",
        "llm.token_count.total",
    ),
}
"""The attributes with each figure of the usage. The first one that a span has counts."""
_COST = ("gen_ai.usage.cost", "llm.cost.total", "operation.cost")
_COSTS = "langfuse.observation.cost_details"
_READ_ELSEWHERE = ("tool_call", "tool_call_response", "reasoning")
"""The types of parts that are no content of a message."""
_IN_WORDS = ("text", "document", "blob", "uri", "file")
"""The types of parts that become texts."""
_MESSAGE_ATTRIBUTES = (
    "role",
    "parts",
    "content",
    "name",
    "id",
    "type",
    "index",
    "tool_call_id",
    "finish_reason",
)
"""Fields of a message that the decoder reads. An import reports all other fields as not read."""


# -- spans to events -------------------------------------------------------------------------------


class _Decoder(FollowingDecoder):
    keeps_shown = False

    def set_up(self) -> None:
        self._traces: dict[str, Trace] = {}
        self.sent: list[SentMessage] = []
        self._condensed_at = -1
        self._failed_calls = set[str]()

    def read(self, collected: RecordEvents, record: Fields) -> None:
        span = TracedSpan(record)
        began = collected.timestamp
        messages = span.messages()
        usage = _model_and_tokens(span.attributes)
        tells = {"messages": messages, "usage": usage.keys() & {"usage", "cost"}}
        trace = self._traces.setdefault(span.trace, Trace(span.trace))
        trace.add(span, [kind for kind in tells if tells[kind]])
        if span.failed_call:
            self._failed_calls.add(span.failed_call)
        # the span of an agent may repeat messages and usage of the spans below the agent
        reported_below = trace.reports_below(span) if span.is_agent else ()
        if "messages" in reported_below:
            messages = {}
        prompt = [*messages.get("system", ()), *messages.get("input", ())]
        if prompt:
            is_compacted = span.attributes.get(COMPACTED) is True
            self._follow_prompt(collected, prompt, "compaction" if is_compacted else None)
        event_count = len(collected.events)
        collected.meta = {}
        if usage and "usage" not in reported_below:
            collected.meta = {"reply": collected.origin.id, **usage}
            if span.is_agent:
                # the sum of an agent does not say how many calls it has
                collected.meta["calls"] = 0
        collected.timestamp = time_at(span.ended / 1e9)
        output = messages.get("output", ())
        if any(map(is_compaction, alone(output))):
            sent = [sent_message.message for sent_message in self.sent]
            self._follow_prompt(collected, [*sent, *output], "compaction")
        else:
            for message in output:
                self._read_message(collected, message)
        if len(collected.events) == event_count:
            collected.add(
                Annotation,
                name="span",
                data=text_or_empty(span.fields, "name"),
                timestamp=began,
            )

    def _follow_prompt(
        self, collected: RecordEvents, prompt: list[Fields], because: Cause | None
    ) -> None:
        """Change the View to the messages of ``prompt``. New messages get new events."""
        prompt = effective(prompt)
        sent_before = self.sent
        gists_before = [sent_message.gist for sent_message in sent_before]
        place = next(
            (
                index
                for index, message in enumerate(prompt)
                if is_compaction(message) and gist(message) not in gists_before
            ),
            None,
        )
        compaction = None if place is None else prompt.pop(place)
        staying_messages = [
            sent_before[index] for index in staying(gists_before, [*map(gist, prompt)])
        ]
        new = prompt[len(staying_messages) :]
        summary: SentMessage | None = None
        if compaction is not None:
            summary = SentMessage(gist(compaction), compaction, ())
            staying_messages.insert(min(place or 0, len(staying_messages)), summary)
        after = list[int | str]()
        for sent_message in staying_messages:
            if sent_message is summary:
                after.append(summary_in(sent_message.message))
            else:
                after += sent_message.ids
        before = [event_id for sent_message in sent_before for event_id in sent_message.ids]
        change = change_of_prompt(before, after, because, condensed_at=self._condensed_at)
        collected.put(change)
        if isinstance(change, CondensationAction):
            self._condensed_at = collected.version - 1
        summary_ids = (summary_id(collected.version - 1),)
        self.sent = [
            sent_message._replace(ids=summary_ids) if sent_message is summary else sent_message
            for sent_message in staying_messages
        ]
        for message in new:
            self._read_message(collected, message)

    def _read_message(self, collected: RecordEvents, message: Fields) -> None:
        """Add the events of a message, and remember that it was sent."""
        role = text_or_empty(message, "role")
        parts = parts_of(message)
        first = len(collected.events)
        unread = [
            key
            for key in message
            if key not in _MESSAGE_ATTRIBUTES and message[key] not in (None, "", [], {})
        ]
        if role == "model":
            role = "assistant"
        if role not in ROLES:
            role = "environment"
            unread = ["role", *unread]
        if unread:
            names = ", ".join(f"{key!r:.80}" for key in unread)
            self.report(f"has a message with {names}, which foldlog does not read")
        collected.response = f"message-{collected.version}"
        collected.parts = _contents(parts)
        for part in parts:
            if part.get("type") == "tool_call":
                collected.call(part.get("name"), part.get("arguments"), part.get("id"))
            elif part.get("type") == "tool_call_response":
                collected.answer(
                    part.get("id"),
                    _result(first_of(part, "response", "result")),
                    is_error=text_or_none(part, "id") in self._failed_calls,
                )
        if collected.parts:
            content = content_of_parts(collected.parts)
            collected.parts = []
            collected.take(spoken(role, content))
        ids = tuple(event.id for event in collected.events[first:] if event.shown)
        self.sent.append(SentMessage(gist(message), message, ids))


def _contents(parts: list[Fields]) -> list[Fields]:
    """Return the parts that are the content of a message."""
    return shown_blocks([_block(part) for part in parts if part.get("type") not in _READ_ELSEWHERE])


def _result(answer: Any) -> Content:
    """Return the answer of a tool as content. An answer without parts becomes its JSON."""
    parts = [part_of(block) for block in dicts_in(answer)]
    if parts and len(parts) == len(answer) and all(map(kind_of, parts)):
        return content_of_parts(_contents(parts))
    if type(answer) is str:
        return answer
    if answer is None:
        return ""
    return json_of(answer).decode()


def _block(part: Fields) -> Fields:
    """Convert a text or an image into a block of its type. A file that is not an image becomes a
    text with the address of the file. Return a part of an unknown type unchanged.
    """
    kind = text_or_empty(part, "type")
    modality = text_or_empty(part, "modality")
    # OpenInference nests the fields of an image under its type
    fields = part | dict_or_empty(part.get(kind))
    text = first_of(fields, "content", "text")
    url = text_or_empty(first_of(fields, "uri", "url"))
    if kind == "blob":
        url = data_url(text_or_empty(part, "mime_type"), text_or_empty(text))
    if url and kind in ("blob", "uri", "image") and "image" in (kind, modality):
        return image_at(url)
    if kind in ("blob", "uri", "file") and "file" not in part:
        text = f"[{modality or 'file'} {text_or_empty(first_of(part, 'uri', 'file_id'))}]"
    if kind in _IN_WORDS and text:
        return text_part(text)
    return part


def _model_and_tokens(attributes: Fields) -> Fields:
    """Return the model, the id of the reply, and the usage that a span records."""

    def first(keys: tuple[str, ...], *kinds: type) -> Any:
        return next((attributes[key] for key in keys if type(attributes.get(key)) in kinds), None)

    model = first(("gen_ai.response.model", "gen_ai.request.model", "llm.model_name"), str)
    fields = {"model": model, "reply": first(("gen_ai.response.id",), str)}
    cost = first(_COST, int, float, str)
    if cost is None:
        cost = within(parse_text(attributes.get(_COSTS)), "total")
    usage = usage_meta(
        {name: first(keys, int, float, str) for name, keys in _USAGE.items()}, cost=cost
    )
    return {name: value for name, value in {**fields, **usage}.items() if value is not None}


# -- events to spans -------------------------------------------------------------------------------


_CHAT_KEYS = ("role", "content", "tool_calls", "tool_call_id")
"""The fields of a chat message that a span has."""


class _Encoder(OpenAIChatEncoder):
    """Makes a span for each reply of a model in one history. A span has all messages of the reply's
    prompt, in the format of a chat.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sent: list[SentMessage] = []
        self._reader: _Decoder | None = None
        """Reads the imported spans, because the next written span repeats their messages."""
        self._is_compacted = False
        self._newest: Event | None = None
        """The newest message, or None if the model wrote it."""
        self._trace = ""

    def records(self, event: Event) -> Sequence[Any] | None:
        self._trace = self._trace or session_of(event).replace("-", "")
        if isinstance(event, CondensationAction) and not is_declined(event):
            complete = self.complete(0)
            self._sent = compact(self._sent, event)
            self._is_compacted = True
            return complete
        return super().records(event)

    def records_of(self, events: Sequence[Any]) -> Sequence[Any]:
        """Return a span for a message of the model. A message that is not from the model becomes a
        part of the next span.
        """
        spans: list[Any] = []
        for chat in super().records_of(events):
            message = message_of(pick(chat, _CHAT_KEYS))
            self._newest = events[-1]
            if message["role"] == "assistant":
                self._newest = None
                spans.append(self._span(events[-1], [message]))
            self._sent.append(SentMessage(b"", message, tuple(event.id for event in events)))
        return spans

    def end(self) -> Sequence[Any]:
        spans = super().end()
        newest = self._newest
        self._newest = None
        return spans if newest is None else [*spans, self._span(newest, ())]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        if record is not None and events:
            self._reader = self._reader or _Decoder(Options(format=FORMAT))
            self._reader.skip_to(events[0].id)
            self._reader.events(record)
            self._sent = [*self._reader.sent]
            self._trace = TracedSpan(record).trace or self._trace

    def _span(self, event: Event, reply: Sequence[Any]) -> Fields:
        """Return a record with the span of a reply and its prompt."""
        time = nanoseconds(event.timestamp)
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([sent.message for sent in self._sent]),
            "gen_ai.output.messages": json.dumps(reply) if reply else "",
            COMPACTED: self._is_compacted or "",
        }
        return request_with(
            {
                "traceId": self._trace,
                "spanId": f"{event.id + 1:016x}",
                "name": "chat",
                "kind": 3,
                "startTimeUnixNano": time,
                "endTimeUnixNano": time,
                "attributes": attributes_of(attributes.items()),
            }
        )


FORMAT = Format(
    name=NAME,
    matches=lambda record: TracedSpan(record).is_ours,
    accepts=lambda record: span_of(record) is not None,
    expected="an object of OpenTelemetry with one span: {'resourceSpans': […]}",
    time=lambda record: (time_at(TracedSpan(record).began / 1e9), None),
    decoder=_Decoder,
    encoder=_Encoder,
    lacks=frozenset(
        (
            "error mark",
            "block of thinking of a message",
            "block of thinking of a call",
            "count of tokens",
            "cost",
            "form of a custom tool's call",
            "field of a chat message",
            "field of a chat call",
        )
    ),
    files=SpanFiles(),
    source_id=lambda record: (span_of(record) or {}).get("spanId"),
    marks_errors=False,
    repeats=True,
)
