"""Events of Google's Agent Development Kit, in the format of
``event.model_dump_json(exclude_none=True)``.

    {"content": {"parts": [{"text": "hi"}], "role": "user"}, "invocation_id": …,
     "author": "user", "actions": {…}, …}

Each part of an event's content becomes one event of foldlog, as in ``parts.py``:

    text                  Message from the author: the user or the agent
    function_call         Action; all calls of an event have the same ``response_id``
    function_response     Observation
    inline_data           Message with the image or another file
    file_data             Message with the file, if the file is at a web address
    a thought             Annotation that stays with the next part of its event
    any other part        Annotation
    no parts              Annotation that is not shown, for example a change of state

    actions.compaction                    CondensationAction that forgets the events between the
                                          compaction's two times
    actions.rewind_before_invocation_id   an Annotation, and then a Retraction of that invocation
                                          and of all later events

The SDK's server writes the names of fields in camel case (``functionCall``). Foldlog reads both
camel case and snake case. A compaction within the time span of an earlier compaction becomes an
Annotation, because it has no effect in the SDK either. Bytes in arguments and results of tools are
``{"$bytes": base64}``.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from foldlog.adapters._records.parts import (
    Made,
    PartsDecoder,
    PartsFormat,
    annotation,
    call_of,
    file_of,
    record_id,
    result_of,
    text_of,
    thought,
)
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
)
from foldlog.formats.event_fields import (
    arguments_of,
    call_id_of,
    data_in,
    file_at,
    file_in,
    parts_as,
    parts_in,
    role_of,
    text_part,
)
from foldlog.formats.messages import drop_empty
from foldlog.formats.record import (
    Fields,
    dicts_in,
    joined_text,
    member,
    reports_error,
    text_or_empty,
    time_at,
    usage_meta,
    within,
)
from foldlog.formats.record_events import RecordEvents

NAME = "google-adk"

# The actions of an event that the SDK writes even if they are empty.
_NO_ACTIONS: Fields = {
    key: {}
    for key in (
        "state_delta",
        "artifact_delta",
        "requested_auth_configs",
        "requested_tool_confirmations",
    )
}
_TIMES = ("start_timestamp", "end_timestamp")
"""The fields of a compaction with the times of its first and last event."""
_USAGE = {
    "prompt_tokens": ("prompt_token_count", "tool_use_prompt_token_count"),
    "cached_tokens": ("cached_content_token_count",),
    "completion_tokens": ("candidates_token_count", "thoughts_token_count"),
    "reasoning_tokens": ("thoughts_token_count",),
}


def _accepts(record: Any) -> bool:
    if type(record) is dict:
        named = {"invocation_id": record.get("invocationId"), **record}
    else:
        named = {}
    if any(type(named.get(key)) is not str for key in ("author", "invocation_id")):
        return False
    content = named.get("content")
    return content is None or (
        type(content) is dict
        and (content.get("parts") is None or type(content["parts"]) is list)
        and all(type(part) is dict for part in content.get("parts") or ())
    )


def _snake_case(record: Any, levels: int = 8) -> Any:
    """Return a record with its keys in snake case. The keys in arguments and results of tools are
    not changed.
    """
    if type(record) is list and levels:
        return [_snake_case(item, levels - 1) for item in record]
    if type(record) is not dict or "invocation_id" in record or not levels:
        return record
    if any(type(key) is not str for key in record):
        return record  # no JSON has such a key, so the record is refused
    named = {
        re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value
        for key, value in record.items()
    }
    return {
        key: value if key in ("args", "response") else _snake_case(value, levels - 1)
        for key, value in named.items()
    }


class _Span(NamedTuple):
    """The time of a shown event, or the time span of the events that a summary replaces."""

    first: datetime
    last: datetime


class _Decoder(PartsDecoder):
    """Converts parts into events, compactions into condensations, and rewinds into retractions.
    ``tag`` returns the time or time span of a shown event.
    """

    keeps_shown = True
    repeated = ("actions.compaction.compacted_content",)

    def set_up(self) -> None:
        self._invocations: dict[str, int] = {}
        """Maps an invocation to the version at which it began."""

    def events(self, record: Any) -> list[Event]:
        return super().events(_snake_case(record))

    def tag(self, event: Event, collected: RecordEvents | None) -> _Span | None:
        if isinstance(event, CondensationAction):
            return _span_in(event.metadata)
        if event.timestamp is None:
            return None
        return _Span(event.timestamp, event.timestamp)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        rewound = within(record, "actions", "rewind_before_invocation_id")
        version = self._invocations.get(rewound) if type(rewound) is str else None
        if not self._condense(collected, record):
            super().read(collected, record)
        self._invocations.setdefault(record["invocation_id"], self.next_id)
        if version is not None:
            collected.add(Retraction, version=version)

    def _condense(self, collected: RecordEvents, record: Fields) -> bool:
        """Add the condensation of a compaction, and return whether a condensation was added. As in
        the SDK, the summary has the time of the last event that it replaces.
        """
        compaction = within(record, "actions", "compaction")
        span = _span_in(compaction)
        content = None if span is None else compaction.get("compacted_content")
        if span is None or type(content) is not dict:
            return False
        before = list[int | str]()
        later = list[int | str]()
        last = datetime.min.replace(tzinfo=UTC)
        for member_id, member_span in self.shown.all():
            # A member without a time has the time of the member before it.
            first, last = member_span or _Span(last, last)
            is_around = first <= span.first and last >= span.last and (first, last) != span
            if member_id < 0 and is_around:  # an earlier summary covers more
                return False
            if span.first <= first and last <= span.last:
                continue
            if last <= span.last:
                before.append(member_id)
            else:
                later.append(member_id)
        collected.begin(Origin(format=NAME), collected.timestamp)
        metadata = {key: compaction[key] for key in _TIMES}
        collected.change([*before, _text_in(content), *later], "compaction", metadata)
        return True


def _span_in(compaction: Any) -> _Span | None:
    """Return the time span of a compaction, or None if one of its times is missing."""
    first, last = (time_at(within(compaction, name)) for name in _TIMES)
    return None if first is None or last is None else _Span(first, last)


def _text_in(content: Fields) -> str:
    """Return the texts of content, without thoughts."""
    texts = (
        part.get("text") for part in dicts_in(content, "parts") if part.get("thought") is not True
    )
    return "\n".join(text for text in texts if type(text) is str)


def _read(part: Fields | None, record: Fields) -> Made:
    """Return the kind and the fields of the event that a part becomes."""
    if part is None:
        return Annotation, {"name": "event"}
    text = part.get("text")
    call = part.get("function_call")
    response = part.get("function_response")
    if type(text) is str and part.get("thought") is not True:
        return Message, {"content": text}
    if type(call) is dict and type(call.get("name")) is str:
        return call_of(call["name"], call.get("args"), call.get("id"))
    if type(response) is dict and type(response.get("name")) is str:
        result = response.get("response")
        failed = reports_error(result)
        match result:
            case {"output": str(text), **others} | {"error": str(text), **others} if not others:
                result = text  # Gemini's keys for the result alone
        files = map(_file, dicts_in(response, "parts"))
        parts = [text_part(text_of(result)), *filter(None, files)]
        return result_of(
            response.get("id"), result, is_error=failed, tool=response["name"], parts=parts
        )
    if (file := _file(part)) is not None:
        return Message, {"content": (file,)}
    if (
        part.get("thought") is True
        and not text
        and (data := _signature(part))
        and record["author"] != "user"
    ):
        return thought("", data, is_redacted=True)
    if type(text) is str:
        if record["author"] != "user":
            return thought(text, _signature(part))
        return annotation("thought", part)
    return annotation(next(iter(part), "part"), part)


def _signature(part: Fields) -> str | None:
    """Return the signature of a part if Anthropic's server made it, or None. Signatures of other
    servers are not ASCII text.
    """
    with suppress(ValueError):
        data = text_or_empty(part, "thought_signature").replace("-", "+").replace("_", "/")
        return a2b_base64(data).decode("ascii") or None
    return None


def _written(event: Any, parts: list[Any]) -> Fields:
    role = role_of(event)
    record = {
        "content": {"parts": parts, "role": "model" if role == "assistant" else "user"},
        "invocation_id": "",
        "author": "agent" if role in ("assistant", "tool") else "user",
        "actions": _NO_ACTIONS,
        "node_info": {"path": ""},
        **record_id("id", event),
    }
    if event.timestamp is None:
        return record
    return {**record, "timestamp": event.timestamp.timestamp()}


def _parts(event: Any) -> list[Fields]:
    match event:
        case Action():
            if event.arguments is None:
                arguments = {}
            else:
                arguments = {"args": arguments_of(event)}
            return [{"function_call": {"id": call_id_of(event), **arguments, "name": event.tool}}]
        case Observation():
            parts = parts_in(event.content)
            files = [_written_file(url) for part in parts if (url := file_in(part))]
            outcome = {"error" if event.is_error else "output": joined_text(event.content)}
            response = {"id": call_id_of(event), "name": event.tool, "response": outcome}
            return [{"function_response": {**({"parts": files} if files else {}), **response}}]
    return parts_as(event.content, lambda text: {"text": text}, _written_file)


def _file(part: Fields) -> Fields | None:
    """Return the file in a part as a content part, or None if there is no file with its bytes or
    at a web address.
    """
    url = text_or_empty(part, "file_data", "file_uri")
    kind = text_or_empty(part, "file_data", "mime_type")
    is_there = url.startswith(("https://", "http://")) and kind
    return file_at(url, kind) if is_there else file_of(part.get("inline_data"))


def _written_file(url: str, _name: str = "") -> Fields:
    media_type, data = data_in(url)
    if media_type:
        return {"inline_data": {"data": data, "mime_type": media_type}}
    return {"file_data": {"file_uri": url, "mime_type": "image/*"}}


FORMAT = PartsFormat(
    name=NAME,
    accepts=_accepts,
    matches=lambda record: _accepts(record) and type(record.get("actions") or {}) is dict,
    decoder=_Decoder,
    source_id=member("id"),
    time=lambda record: (time_at(record.get("timestamp")), None),
    expected="an event that names its author and its invocation_id, with parts that are objects",
    noun="event",
    parts=("content", "parts"),
    source=lambda record: "user" if record["author"] == "user" else "agent",
    read=_read,
    part=_parts,
    thought=lambda text, signed: drop_empty(
        {
            "text": text,
            "thought": True,
            "thought_signature": urlsafe_b64encode(signed.encode()).decode(),
        }
    ),
    written=_written,
    usage=lambda record: usage_meta(
        record.get("usage_metadata"), _USAGE, model=record.get("model_version")
    ),
)
