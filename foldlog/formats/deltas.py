"""Deltas: the pieces of a reply in the order in which a model writes them, in no provider's form.

A delta names its place (``at``), because a model may write several texts and calls at once. From
the deltas so far, ``Draft`` makes the reply so far: only its complete calls, so that a prompt never
contains half a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct, json as msgspec_json

from foldlog._base.json_types import JsonObject


class TextDelta(Struct, frozen=True, tag="text", omit_defaults=True):
    """A piece of the text."""

    text: str
    at: int = 0


class ReasoningDelta(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """A piece of the reasoning. The last piece of a thinking block of Anthropic has its
    ``signature``, without which the provider refuses the block in a later prompt.
    """

    text: str
    at: int = 0
    signature: str | None = None


class CallDelta(Struct, frozen=True, tag="call", omit_defaults=True):
    """A piece of a tool call. The first piece has the ``id`` and the name of the ``tool``. Each
    piece may have some of the ``arguments``, whose pieces are joined. ``ends`` is true in the last
    piece, if the provider says so.
    """

    at: int
    id: str | None = None
    tool: str | None = None
    arguments: str = ""
    ends: bool = False


class AboutDelta(Struct, frozen=True, tag="about", omit_defaults=True):
    """What a provider says about the reply: its id, its model, and its usage so far."""

    id: str | None = None
    model: str | None = None
    usage: JsonObject | None = None


class EndDelta(Struct, frozen=True, tag="end", omit_defaults=True):
    """The end of a stream, which only readers get. ``event`` is the id of the first event that the
    reply became, or None if it became none.
    """

    event: int | None = None


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | AboutDelta
"""A piece of a reply."""

encode_deltas = msgspec_json.Encoder().encode
decode_deltas = msgspec_json.Decoder(list[Delta]).decode


class CallDraft(Struct):
    """A tool call so far."""

    id: str | None = None
    tool: str | None = None
    arguments: str = ""
    ends: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether the call has all its arguments: the provider says so, or the arguments are a JSON
        object. A part of the text of an object is no object.
        """
        if not self.tool:
            return False
        return self.ends or is_object(self.arguments)

    def as_chat(self, number: int) -> JsonObject:
        """Return the call in the form of chat completions. ``number`` makes an id, if it has
        none.
        """
        function = {"name": self.tool, "arguments": self.arguments or "{}"}
        return {"id": self.id or f"call-{number}", "type": "function", "function": function}


class Draft:
    """A reply so far."""

    def __init__(self, deltas: Iterable[Delta] = ()) -> None:
        self._texts: dict[int, list[str]] = {}
        self._reasoning: dict[int, list[str]] = {}
        self._signatures: dict[int, str] = {}
        self._calls: dict[int, CallDraft] = {}
        self._about: JsonObject = {}
        for delta in deltas:
            self.add(delta)

    def add(self, delta: Delta) -> None:
        """Add the next piece of the reply."""
        match delta:
            case TextDelta(text, at):
                self._texts.setdefault(at, []).append(text)
            case ReasoningDelta(text, at, signature):
                self._reasoning.setdefault(at, []).append(text)
                if signature is not None:
                    self._signatures[at] = signature
            case CallDelta():
                call = self._calls.setdefault(delta.at, CallDraft())
                call.id = call.id or delta.id
                call.tool = call.tool or delta.tool
                call.arguments += delta.arguments
                call.ends = call.ends or delta.ends
            case AboutDelta():
                for name in ("id", "model", "usage"):
                    value = getattr(delta, name)
                    if value is not None:
                        self._about[name] = value

    @property
    def text(self) -> str:
        """The text so far."""
        return _joined(self._texts)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return _joined(self._reasoning)

    @property
    def has_calls(self) -> bool:
        """Whether the reply has a call, complete or not."""
        return bool(self._calls)

    @property
    def has_half_call(self) -> bool:
        """Whether the arguments of a call are incomplete."""
        return not all(call.is_complete for call in self._calls.values())

    @property
    def calls(self) -> list[JsonObject]:
        """The complete calls, in the form of chat completions."""
        complete = [call for _, call in sorted(self._calls.items()) if call.is_complete]
        return [call.as_chat(number) for number, call in enumerate(complete)]

    @property
    def is_empty(self) -> bool:
        """Whether the reply so far has neither a text nor a complete call."""
        return not (self.text or self.calls)

    def reply(self) -> JsonObject:
        """Return the reply so far as a chat completion."""
        message: JsonObject = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self._signatures:
            message["thinking_blocks"] = [
                {
                    "type": "thinking",
                    "thinking": "".join(self._reasoning[at]),
                    "signature": signature,
                }
                for at, signature in sorted(self._signatures.items())
            ]
        if self.calls:
            message["tool_calls"] = self.calls
        return {**self._about, "choices": [{"index": 0, "message": message}]}


def as_ui_chunks(deltas: Iterable[Delta | EndDelta]) -> Iterator[JsonObject]:
    """Yield the chunks of the Vercel AI SDK's UI message stream, from the beginning of a reply."""
    yield {"type": "start"}
    open_parts: dict[tuple[str, int], str] = {}
    calls: dict[int, CallDraft] = {}
    for delta in deltas:
        match delta:
            case TextDelta(text, at) | ReasoningDelta(text, at):
                if not text:  # only the signature of the reasoning
                    continue
                kind = "text" if isinstance(delta, TextDelta) else "reasoning"
                part = f"{kind}-{at}"
                if (kind, at) not in open_parts:
                    open_parts[kind, at] = part
                    yield {"type": f"{kind}-start", "id": part}
                yield {"type": f"{kind}-delta", "id": part, "delta": text}
            case CallDelta(at, call_id, tool, arguments, ends):
                call = calls.get(at)
                if call is None:
                    call = CallDraft(call_id or f"call-{at}", tool)
                    calls[at] = call
                    yield {
                        "type": "tool-input-start",
                        "toolCallId": call.id,
                        "toolName": call.tool or "",
                    }
                call.arguments += arguments
                call.ends = call.ends or ends
                if arguments:
                    yield {
                        "type": "tool-input-delta",
                        "toolCallId": call.id,
                        "inputTextDelta": arguments,
                    }
    for (kind, _), part in open_parts.items():
        yield {"type": f"{kind}-end", "id": part}
    for call in calls.values():
        if call.is_complete:
            yield {
                "type": "tool-input-available",
                "toolCallId": call.id,
                "toolName": call.tool,
                "input": _value_of(call.arguments or "{}"),
            }
    yield {"type": "finish"}


def _joined(pieces: dict[int, list[str]]) -> str:
    """Join the pieces of all places."""
    return "".join("".join(texts) for _, texts in sorted(pieces.items()))


def is_object(text: str) -> bool:
    """Return whether a text is a JSON object, so that nothing of it is missing."""
    return isinstance(_value_of(text), dict)


def _value_of(text: str) -> Any:
    """Return the value of a JSON text, or the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # cut off, too deep, or of a tool that takes no JSON
        return text
