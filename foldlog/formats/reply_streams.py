"""Read what the SDKs of models give while a model writes: chunks of chat completions (OpenAI,
litellm), events of OpenAI's Responses, Anthropic's events, and plain text.

A reader makes deltas of each chunk, and of all chunks the complete reply in the form of its
provider, so that nothing of it is lost when it is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import InvalidArgument
from foldlog.formats.deltas import (
    AboutDelta,
    CallDelta,
    Delta,
    Draft,
    ReasoningDelta,
    TextDelta,
    is_object,
)
from foldlog.formats.record import describe_type, dict_or_empty, text_or_none

_REASONING = ("reasoning_content", "reasoning")
"""The fields with which servers send the model's thinking."""
_TEXTS_IN_PIECES = ("audio", "function_call")
"""The objects in a message whose texts come in pieces: the transcript and the bytes of a sound, and
the arguments of a call in OpenAI's earlier format.
"""
_PARTS_OF_CALLS = frozenset(("index", "id", "type", "function"))
"""The fields of a piece of a call that every server sends."""
_ENDS_OF_CALLS = ("tool_calls", "function_call", "stop")
"""The finish reasons after which each call has all its arguments."""


class ReplyReader(Protocol):
    """Reads the chunks of one reply."""

    def read(self, chunk: Any) -> list[Delta]:
        """Return the deltas of the next chunk, which may be none. Raises ``InvalidArgument`` for a
        chunk of another form.
        """

    @property
    def is_complete(self) -> bool:
        """Whether the provider has said that the reply ends here. A reader of texts takes the end
        of the chunks for the end of the reply, unless the arguments of a call are incomplete.
        """

    def reply(self) -> JsonObject:
        """Return the complete reply, in the form of its provider."""


def reader_for(chunk: Any) -> ReplyReader:
    """Return a reader for a stream that begins with ``chunk``: a text, a delta, or a map with the
    fields of a chunk.
    """
    if isinstance(chunk, str | Delta):
        return DeltaReader()
    if isinstance(chunk, Mapping):
        kind = chunk.get("type")
        if "choices" in chunk:
            return ChatReader()
        if isinstance(kind, str):
            is_of_responses = kind.startswith("response.")
            return ResponsesReader() if is_of_responses else AnthropicReader()
    raise InvalidArgument(
        f"a chunk of type {type(chunk).__name__} is of no known form; pass what the SDK of OpenAI,"
        " Anthropic or litellm yields, texts, or deltas of foldlog.types"
    )


def finish_reason_of(reply: JsonObject) -> str | None:
    """Return why the model ended a reply, in its provider's word."""
    reason: str | None
    choices = reply.get("choices")
    if choices:
        reason = choices[0].get("finish_reason")
    else:
        reason = reply.get("stop_reason") or reply.get("status")
    return reason


def failure_in(chunk: JsonObject) -> str | None:
    """Return what the provider says of its failure, if the chunk or event tells one."""
    kind = chunk.get("type")
    if kind == "response.failed":
        error = dict_or_empty(chunk, "response").get("error") or "the response failed"
    elif kind == "error":
        error = chunk.get("error") or {**chunk, "type": None}
    else:
        error = chunk.get("error")
    if not error:
        return None
    if not isinstance(error, Mapping):
        return str(error)
    words = (error.get("code") or error.get("type"), error.get("message"))
    return ": ".join(str(word) for word in words if word) or json.dumps(error)


class DeltaReader:
    """Reads texts and deltas."""

    def __init__(self, deltas: tuple[Delta, ...] = ()) -> None:
        self._draft = Draft(deltas)
        self._has_begun = bool(deltas)

    def read(self, chunk: Any) -> list[Delta]:
        delta = TextDelta(chunk) if isinstance(chunk, str) else chunk
        if not isinstance(delta, Delta):
            raise InvalidArgument(
                f"the stream began with texts or deltas, but a chunk is {type(chunk).__name__}"
            )
        if isinstance(delta, TextDelta) and not delta.text:
            return []
        self._draft.add(delta)
        self._has_begun = True
        return [delta]

    @property
    def is_complete(self) -> bool:
        return self._has_begun and not self._draft.has_half_call

    def reply(self) -> JsonObject:
        return self._draft.reply()


class ChatReader:
    """Reads chunks of chat completions."""

    def __init__(self) -> None:
        self._fields: JsonObject = {}
        self._message: JsonObject = {"role": "assistant", "content": None}
        self._calls: dict[int, JsonObject] = {}
        self._places: dict[int, int] = {}
        """Maps the index of a call in the stream to its place in ``_calls``."""
        self._finish_reason: str | None = None

    def read(self, chunk: Any) -> list[Delta]:
        is_first = not self._fields
        for name, value in chunk.items():
            if name not in ("choices", "object") and value is not None:
                self._fields[name] = value
        deltas: list[Delta] = []
        if is_first or chunk.get("usage"):
            deltas.append(_about(chunk))
        for choice in chunk["choices"]:
            if choice.get("index"):
                raise InvalidArgument("the stream has several choices; ask the model for one (n=1)")
            deltas += self._read_delta(choice.get("delta") or {})
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            if choice.get("finish_reason") in _ENDS_OF_CALLS:
                # Else a call without arguments would look like one whose arguments are to come.
                deltas += [
                    CallDelta(at, ends=True)
                    for at, call in sorted(self._calls.items())
                    if not call["function"]["arguments"]
                ]
        return deltas

    def _read_delta(self, delta: JsonObject) -> list[Delta]:
        """Add the fields of a chunk to the message, and return its deltas."""
        deltas: list[Delta] = []
        for name, value in delta.items():
            if name == "tool_calls":
                deltas.extend(map(self._read_call, value or ()))
            elif name in _TEXTS_IN_PIECES and isinstance(value, dict):
                self._message[name] = _with_pieces(self._message.get(name) or {}, value)
            elif name != "role" and value:
                self._message[name] = _grown(self._message.get(name), value)
                if isinstance(value, str) and name == "content":
                    deltas.append(TextDelta(value))
                elif isinstance(value, str) and name in _REASONING:
                    deltas.append(ReasoningDelta(value))
        return deltas

    def _read_call(self, piece: JsonObject) -> CallDelta:
        """Add a piece of a call to the call, and return its delta."""
        at = self._place_of_call(piece)
        function = piece.get("function") or {}
        call = self._calls.setdefault(at, {"type": "function", "function": {"arguments": ""}})
        call["id"] = call.get("id") or piece.get("id")
        for name, value in piece.items():
            if name not in _PARTS_OF_CALLS and value is not None:
                call[name] = _grown(call.get(name), value)
        for name, value in function.items():
            if name != "arguments" and value is not None:
                call["function"][name] = value
        arguments = _piece_of(function.get("arguments") or "")
        call["function"]["arguments"] += arguments
        return CallDelta(at, text_or_none(piece, "id"), text_or_none(function, "name"), arguments)

    def _place_of_call(self, piece: JsonObject) -> int:
        """Return the place of the call to which a piece belongs. Gemini's server gives all calls of
        a reply the same index, so the calls of an index are told apart by their ids.
        """
        index = _place_in(piece, "index")
        call_id = text_or_none(piece, "id")
        name = text_or_none(piece, "function", "name")
        at = self._places.get(index)
        if at is None:
            # With a name, a call begins: some servers give several calls the same id.
            begun = None if name else self._place_of_id(call_id)
            at = self._free_place(index) if begun is None else begun
        elif call_id and call_id != self._calls[at]["id"]:
            begun = self._place_of_id(call_id)
            if begun is not None:
                at = begun
            elif _ends_before(self._calls[at], name):
                at = self._free_place(index)
        self._places[index] = at
        return at

    def _place_of_id(self, call_id: str | None) -> int | None:
        """Return the place of the call that began with an id, or None if there is none."""
        places = (at for at, call in self._calls.items() if call_id and call["id"] == call_id)
        return next(places, None)

    def _free_place(self, index: int) -> int:
        """Return the place of a call that begins with an index."""
        return max(self._calls) + 1 if index in self._calls else index

    @property
    def is_complete(self) -> bool:
        return self._finish_reason is not None

    def reply(self) -> JsonObject:
        message = {**self._message}
        if self._calls:
            message["tool_calls"] = [call for _, call in sorted(self._calls.items())]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason}
        return {**self._fields, "object": "chat.completion", "choices": [choice]}


class AnthropicReader:
    """Reads the events of Anthropic's Messages API. Events that repeat others are ignored."""

    def __init__(self) -> None:
        self._message: JsonObject = {"role": "assistant", "type": "message", "content": []}
        self._blocks: dict[int, JsonObject] = {}
        self._inputs: dict[int, str] = {}
        self._is_complete = False

    def read(self, chunk: Any) -> list[Delta]:
        match chunk.get("type"):
            case "message_start":
                message = dict_or_empty(chunk, "message")
                self._message.update(message)
                return [_about(message)]
            case "content_block_start":
                block = {**_object_in(chunk, "content_block")}
                return self._begin_block(_index_of(chunk), block)
            case "content_block_delta":
                return self._grow_block(_index_of(chunk), _object_in(chunk, "delta"))
            case "content_block_stop":
                return self._end_block(_index_of(chunk))
            case "message_delta":
                self._message.update(dict_or_empty(chunk, "delta"))
                counts = dict_or_empty(chunk, "usage").items()
                # A null says nothing, so it does not replace the count at the beginning.
                known_counts = {name: count for name, count in counts if count is not None}
                usage = {**dict_or_empty(self._message, "usage"), **known_counts}
                self._message["usage"] = usage
                return [AboutDelta(usage=usage)]
            case "message_stop":
                self._is_complete = True
        return []

    def _begin_block(self, index: int, block: JsonObject) -> list[Delta]:
        """Begin a block of the message, and return its deltas."""
        self._blocks[index] = block
        match block.get("type"):
            case "tool_use":
                return [CallDelta(index, text_or_none(block, "id"), text_or_none(block, "name"))]
            case "text" if block.get("text"):
                return [TextDelta(_piece_of(block["text"]), index)]
            case "thinking" if block.get("thinking"):
                return [ReasoningDelta(_piece_of(block["thinking"]), index)]
        return []

    def _grow_block(self, index: int, delta: JsonObject) -> list[Delta]:
        """Add a piece to a block, and return its deltas."""
        block = self._blocks[index]
        match delta.get("type"):
            case "text_delta":
                text = _piece_of(delta["text"])
                block["text"] = block.get("text", "") + text
                return [TextDelta(text, index)]
            case "thinking_delta":
                thinking = _piece_of(delta["thinking"])
                block["thinking"] = block.get("thinking", "") + thinking
                return [ReasoningDelta(thinking, index)]
            case "input_json_delta":
                arguments = _piece_of(delta["partial_json"])
                self._inputs[index] = self._inputs.get(index, "") + arguments
                if block.get("type") == "tool_use":
                    return [CallDelta(index, arguments=arguments)]
            case "signature_delta":
                block["signature"] = _piece_of(delta["signature"])
                return [ReasoningDelta("", index, block["signature"])]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "compaction_delta":
                block.update(_fields_of(delta))
            case _:  # such as a delta of a newer API
                for name, piece in _fields_of(delta).items():
                    block[name] = _grown(block.get(name), piece)
        return []

    def _end_block(self, index: int) -> list[Delta]:
        """End a block, and return its deltas. The arguments of a call become an object, unless they
        are cut off.
        """
        block = self._blocks[index]
        if index in self._inputs:
            try:
                block["input"] = json.loads(self._inputs[index] or "{}")
            except (ValueError, RecursionError):  # the model was cut off, or nests too deep
                block["input"] = self._inputs[index]
                return []
        if block.get("type") == "tool_use":
            return [CallDelta(index, ends=True)]
        return []

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def reply(self) -> JsonObject:
        return {**self._message, "content": [block for _, block in sorted(self._blocks.items())]}


class ResponsesReader:
    """Reads the events of OpenAI's Responses API, whose last event has the whole response."""

    def __init__(self) -> None:
        self._response: JsonObject | None = None

    def read(self, chunk: Any) -> list[Delta]:
        kind = str(chunk.get("type", "")).removeprefix("response.")
        match kind:
            case "created":
                return [_about(_object_in(chunk, "response"))]
            case "output_text.delta" | "refusal.delta":
                return [TextDelta(_piece_of(chunk["delta"]), _output_of(chunk))]
            case "reasoning_text.delta" | "reasoning_summary_text.delta":
                return [ReasoningDelta(_piece_of(chunk["delta"]), _output_of(chunk))]
            case "output_item.added" if _is_call(chunk["item"]):
                call_id = text_or_none(chunk["item"], "call_id")
                return [CallDelta(_output_of(chunk), call_id, text_or_none(chunk["item"], "name"))]
            case "function_call_arguments.delta" | "custom_tool_call_input.delta":
                return [CallDelta(_output_of(chunk), arguments=_piece_of(chunk["delta"]))]
            case "output_item.done" if _is_call(chunk["item"]):
                return [CallDelta(_output_of(chunk), ends=True)]
            case "completed" | "incomplete":
                self._response = _object_in(chunk, "response")
                usage = dict_or_empty(self._response, "usage")
                return [AboutDelta(usage=usage)] if usage else []
        return []

    @property
    def is_complete(self) -> bool:
        return self._response is not None

    def reply(self) -> JsonObject:
        return self._response or {}


def _about(fields: JsonObject) -> AboutDelta:
    """Return what a provider says about a reply. Values of other types are left out, because no
    stored delta has them.
    """
    usage = dict_or_empty(fields, "usage") or None
    return AboutDelta(text_or_none(fields, "id"), text_or_none(fields, "model"), usage)


def _piece_of(value: Any) -> str:
    """Return a piece of a text. Raises ``InvalidArgument`` for any other value."""
    if not isinstance(value, str):
        raise InvalidArgument(f"a piece of the reply is {describe_type(value)}, not a text")
    return value


def _place_in(chunk: JsonObject, name: str) -> int:
    """Return the place of a text or a call, which is 0 if the chunk does not name it. Raises
    ``InvalidArgument`` for a value that is not a whole number.
    """
    place = chunk.get(name) or 0
    if type(place) is not int:
        raise InvalidArgument(f"its {name!r} is {describe_type(place)}, not a whole number")
    return place


def _output_of(event: JsonObject) -> int:
    """Return the place of an item in the output of a response: see ``_place_in``."""
    return _place_in(event, "output_index")


def _index_of(event: JsonObject) -> int:
    """Return the place of a block of Anthropic's. Raises ``InvalidArgument`` for an event that does
    not name it, because its text would replace another block.
    """
    if event.get("index") is None:
        raise InvalidArgument("it has no 'index', which names the block of its text")
    return _place_in(event, "index")


def _object_in(chunk: JsonObject, name: str) -> JsonObject:
    """Return an object in a chunk. Raises ``InvalidArgument`` if the chunk has none."""
    value = chunk.get(name)
    if not isinstance(value, dict):
        raise InvalidArgument(f"its {name!r} is {describe_type(value)}, not an object")
    return value


def _fields_of(delta: JsonObject) -> JsonObject:
    """Return the fields of a delta that belong to its block."""
    return {name: value for name, value in delta.items() if name != "type"}


def _ends_before(call: JsonObject, name: str | None) -> bool:
    """Return whether a piece with a new id and this name begins another call. Otherwise the piece
    goes on with ``call``: some servers give each piece of a call another id, and some repeat the
    name, too.
    """
    function = call["function"]
    if not call["id"] or not name:
        return False
    is_half = function["arguments"] and not is_object(function["arguments"])
    return name != function.get("name") or not is_half


def _is_call(item: JsonObject) -> bool:
    return item.get("type") in ("function_call", "custom_tool_call")


def _grown(before: Any, piece: Any) -> Any:
    """Join the pieces of a field that a server sends piece by piece."""
    if isinstance(before, str) and isinstance(piece, str):
        return before + piece
    if isinstance(before, list) and isinstance(piece, list):
        return _merged([*before, *piece])
    if isinstance(before, dict) and isinstance(piece, dict):
        return {**before, **piece}
    return piece


def _with_pieces(before: JsonObject, pieces: JsonObject) -> JsonObject:
    """Return an object with its next pieces. The names and ids in an object are not cut."""
    grown = {
        name: piece if name in ("id", "name") else _grown(before.get(name), piece)
        for name, piece in pieces.items()
        if piece is not None
    }
    return {**before, **grown}


def _merged(blocks: list[Any]) -> list[Any]:
    """Join the pieces of thinking blocks. litellm sends the pieces of the text of a block, and then
    its signature.
    """
    merged: list[Any] = []
    for block in blocks:
        last: Any = merged[-1] if merged else None
        if _is_thinking(block) and _is_thinking(last) and not last.get("signature"):
            joined = (last.get("thinking") or "") + (block.get("thinking") or "")
            merged[-1] = {**last, **block, "thinking": joined}
        else:
            merged.append(block)
    return merged


def _is_thinking(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "thinking"
