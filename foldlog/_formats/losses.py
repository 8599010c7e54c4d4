"""Find what events tell and their records do not, by comparing the texts of both."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog._formats.blocks import thought_in
from foldlog._formats.format import Format, Options, RecordEncoder
from foldlog._formats.packing import bytes_of, is_declined, value_of
from foldlog._formats.record import UNREAD, dict_or_empty, joined_text
from foldlog._formats.told import call_id_of, data_in, parts_in
from foldlog._kinds import label
from foldlog._usage import IMPORTED
from foldlog._values import texts_in
from foldlog.eventstore import (
    ATTRIBUTES,
    Action,
    CondensationAction,
    CondensationSummary,
    Content,
    DocumentChanges,
    Event,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.projections import View
from foldlog.projections.messages import DIALECTS
from foldlog.projections.messages.turns import words_of

_HELD_MAX = 100
"""A writer that writes something has held back at most this many events."""
_LONG = 16
"""A line of this length in a text is the line that is sought; a shorter one only if it is a whole word."""
_MAIN = ""
"""The key of the field for which a part is there. If that is lost, its other fields are not counted."""
_GIVEN, _THINKING = "argument", "thinking block"
_NOUNS = {"image_url": "image", "file": "file", "server_tool": "call of a server's tool"}
_NAMES = {"system": "system prompt", "error": "observation", "redaction": "redaction receipt"}
_OF_CHAT = ("message", "call", "blocks")
"""Keys of ``meta`` for the fields of a chat message that events lack."""
_SPENT = "count of tokens and cost"


class _Told(NamedTuple):
    """A part of what an event tells: the texts of each field. The text ``whole`` stands for those of the main one."""

    noun: str
    fields: dict[str, list[str]]
    whole: str = ""


class Losses:
    """What of the events of one history no record has. ``write`` makes records of events: by default the writer of the
    format.
    """

    def __init__(self, format: Format, write: Callable[[Sequence[Event]], Sequence[Any]] | None = None) -> None:
        self._format, self._write = format, write or self._by_writer
        self._counts: Counter[str] = Counter()
        """The number of losses, by a noun in the singular."""
        self._hidden: Counter[str] = Counter()
        self._sought: list[tuple[Event, list[_Told]]] = []
        """Events with what was not found yet of each."""
        self._before: Event | None = None
        self._open = set[int | None]()
        """The ids of calls without a result."""
        self._otherwise: dict[tuple[Any, ...], bool] = {}
        self._replies = set[Any]()

    def leave_out(self, event: Event, *, hidden: bool = False) -> None:
        """Count an event that has no record, because no model was shown it (``hidden``) or the format has none."""
        changed = event.changed.keys() if isinstance(event, DocumentChanges) else ()
        if IMPORTED in changed:
            self._counts["total of tokens and cost"] = 1
        if not (IMPORTED in changed or UNREAD in changed or is_declined(event)):
            (self._hidden if hidden else self._counts)[_name(event)] += 1

    def seek(self, event: Event, writer: RecordEncoder) -> None:
        """Look for what an event tells in the records that ``writer`` makes from now on."""
        self._counts["place of a summary among what is kept"] = writer.misplaced
        for noun, example in _examples(event, self._before):
            self._counts[noun] += self._tells_otherwise(noun, example)
        if isinstance(event, Action):
            self._open.add(event.id)
        self._open.discard(event.cause)
        self._before = event if isinstance(event, Message | SystemMessage | Action | Observation) else self._before
        reply = event.meta.get("reply")
        if type(reply) is str and reply in self._replies:  # each has what was spent so far
            event = replace(event, meta={key: event.meta[key] for key in event.meta if key not in ("usage", "cost")})
        self._replies |= {reply} if type(reply) is str else set()
        self._sought.append((event, _told_by(event)))

    def look_in(self, records: Sequence[Any]) -> None:
        """Look in these records. If they have the id of a call, or any text of another event, that is written, and what
        they do not have of it is lost. Cost: the records, and the events that are sought.
        """
        if not records:
            return
        written, later = _Written(records), list[tuple[Event, list[_Told]]]()
        for event, told in self._sought:
            missing = [each for each in map(written.missing, told) if each.fields]
            is_written = call_id_of(event) in written if isinstance(event, Action) else missing != told
            if is_written:
                self._count(missing)
            elif missing:
                later.append((event, missing))
        self._sought = later[-_HELD_MAX:]
        for _, told in later[:-_HELD_MAX]:
            self._count(told)

    def end(self) -> list[str]:
        """Return what no model was shown, and what is lost, in words. What was not found is lost."""
        for _, told in self._sought:
            self._count(told)
        self._counts[_LACK] = len(self._open) if self._open and self._tells_otherwise(_LACK, _UNANSWERED) else 0
        counts = (self._hidden, self._counts)
        return [", ".join(several(number, noun) for noun, number in each.items() if number) for each in counts]

    def _count(self, missing: Iterable[_Told]) -> None:
        for noun, fields, _ in missing:
            self._counts.update([noun] if _MAIN in fields else [f"value of {key}" for key in fields])

    def _tells_otherwise(self, noun: str, example: tuple[Event, ...]) -> bool:
        """Return whether a model is told otherwise after an import of the records of an example, which have all that it
        tells. Where that is so of any call, it is of no use to tell more.
        """
        key = noun, len(example), repr(example[-1])
        if key not in self._otherwise:
            has_calls = noun != _CALLS and any(isinstance(event, Action) for event in example)
            is_of_all = has_calls and self._tells_otherwise(_CALLS, _ANSWERED)
            self._otherwise[key] = not is_of_all and self._is_told_otherwise(example)
        return self._otherwise[key]

    def _is_told_otherwise(self, example: tuple[Event, ...]) -> bool:
        events = [replace(event, id=number) for number, event in enumerate(example)]
        records = self._write(events)
        written, decoder = _Written(records), self._format.reader(records, Options())
        if any(written.missing(told).fields for event in events for told in _told_by(event)):
            return False
        sent, read = View.from_events(events), View.from_events(each for one in records for each in decoder.events(one))
        return any(sent.to_messages(dialect) != read.to_messages(dialect) for dialect in DIALECTS)

    def _by_writer(self, events: Sequence[Event]) -> Sequence[Any]:
        writer = self._format.writer()
        records = [*writer.head(events[0]), *(each for event in events for each in writer.records(event) or ())]
        return [*records, *writer.end()]


def several(number: int, noun: str) -> str:
    """Return a number of things: ``1 image``, ``2 changes of documents``."""
    one, of, rest = noun.partition(" of ")
    return f"{number} {one}{'' if number == 1 else 's'}{of}{rest}"


def _name(event: Event) -> str:
    """Return the name for people of an event that a format has no record for."""
    word = label(event)
    if isinstance(event, DocumentChanges):
        return "change of attributes" if event.changed.keys() == {ATTRIBUTES} else "change of documents"
    if isinstance(event, CondensationAction) and word == "system":
        return "replacement of a system prompt"
    return f"message of the {word}" if isinstance(event, Message) else _NAMES.get(word, word)


# -- what is told otherwise -------------------------------------------------------------------------------------------

_SAID, _PROMPT = Message(source="user", content="ask"), SystemMessage(content="prompt")
_CALL = Action(tool="tool", call_id="call-1", arguments={"argument": 1}, response_id="reply")
_RESULT = Observation(tool="tool", call_id="call-1", content="result")
_NEXT, _RESULTS = replace(_CALL, call_id="call-2"), (_RESULT, replace(_RESULT, call_id="call-2"))
_CUSTOM = replace(_CALL, arguments={"input": "raw"}, meta={"custom_tool": True})
_THOUGHT = ({"type": "thinking", "thinking": "consider", "signature": "signed"},)
_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
_TEXT, _PLACE = {"type": "text", "text": "so"}, "place of an image"
_SEARCH = {"type": "server_tool_use", "id": "s", "name": "web", "input": {"query": "seek"}}
_FOUND = {"type": "web_search_tool_result", "tool_use_id": "s", "content": "found"}
_SERVED = (_SAID, replace(_SAID, source="agent", content=({"type": "server_tool", "blocks": [_SEARCH, _FOUND]},)))
_CALLS, _LACK = "form of a call", "lack of a result"
_ANSWERED, _UNANSWERED = (_SAID, _CALL, _NEXT, *_RESULTS), (_SAID, _CALL)


def _examples(event: Event, before: Event | None) -> Iterator[tuple[str, tuple[Event, ...]]]:
    """Yield what a format may tell otherwise of an event after another one: its noun, and a conversation with it."""
    match event:
        case SystemMessage():
            yield (
                "role of a system prompt (written as words of others)",
                (_PROMPT, _SAID) if before is None else (_SAID, _PROMPT),
            )
        case Message() if places := _places_in(event.content):
            yield _PLACE, (_SAID, replace(_SAID, source=event.source, content=places))
        case Observation():
            if event.is_error:
                yield "error mark", (_SAID, _CALL, replace(_RESULT, is_error=True))
            if places := _places_in(event.content):
                yield _PLACE, (_SAID, _CALL, replace(_RESULT, content=places))
        case Action():
            yield _CALLS, _ANSWERED
            if "custom_tool" in event.meta:
                yield "form of a custom tool's call", (_SAID, _CUSTOM, _RESULT)
            goes_on = isinstance(before, Action) and event.response_id == before.response_id is not None
            if goes_on and event.thought:
                yield "place of words among calls", (_SAID, _CALL, replace(_NEXT, thought="look"), *_RESULTS)
            if isinstance(before, Action) and not goes_on:
                yield "end of a reply", (_SAID, _CALL, replace(_NEXT, response_id="other"), *_RESULTS)
    if any(part.get("type") == "server_tool" for part in parts_in(words_of(event))):
        yield "form of a call of a server's tool", _SERVED
    if isinstance(event, Action | Message) and any("signature" in block for block in event.thinking):
        yield "signature of thinking", (_SAID, replace(_CALL, thinking=_THOUGHT), _RESULT)


def _places_in(content: Content) -> Content:
    """Return a content that has an image or a text in the place of each part; empty where there are only texts."""
    kinds = [] if isinstance(content, str) else [part.get("type") == "text" for part in content]
    return () if all(kinds) else tuple(_TEXT if is_text else _IMAGE for is_text, _ in groupby(kinds))


# -- what an event tells ----------------------------------------------------------------------------------------------


def _values_of(event: Event) -> list[tuple[str, Any]]:
    """Return what an event tells, each with its noun: contents and thinking, and JSON values."""
    values: list[tuple[str, Any]] = []
    match event:
        case Action():
            values = [("thought", event.thought), ("tool name", event.tool), (_GIVEN, event.arguments)]
        case Message() | SystemMessage() | Observation() | CondensationSummary():
            values = [("text", event.content)]
        case CondensationAction():
            values = [("summary", event.summary)]
    if isinstance(event, Action | Message):
        values.append((_THINKING, event.thinking))
    if spent := {key: event.meta[key] for key in ("usage", "cost") if key in event.meta}:
        values.append((_SPENT, dict_or_empty(event.meta.get("message")).get("usage") or spent))
    for name in _OF_CHAT if event.meta else ():
        values += ((f"value of {key}", value) for key, value in dict_or_empty(event.meta.get(name)).items())
    return [each for each in values if each[1]]


def _told_by(event: Event) -> list[_Told]:
    """Return the parts of what an event tells that have texts."""
    return [told for noun, value in _values_of(event) for told in _told_in(noun, value) if told.fields]


def _told_in(noun: str, value: Any) -> list[_Told]:
    if type(value) is tuple:
        whole = joined_text(value)
        return [_told_by_part(noun, part, whole) for part in value]
    if noun == _SPENT:
        return [_Told(noun, {_MAIN: [bytes_of(value).decode()]})]
    given = value_of(value) if noun == _GIVEN and isinstance(value, str) else value
    return [_Told(noun, _texts_by_key({_MAIN: given}), value if given is not value else "")]


def _told_by_part(noun: str, part: dict[str, Any], whole: str) -> _Told:
    kind = str(part.get("type"))
    if noun == _THINKING:
        part = {**part, kind: thought_in(part)[0], "summary": None}
    fields = _texts_by_key({**part, kind: None, **part[kind]} if type(part.get(kind)) is dict else part)
    fields.pop("type", None)
    if fields:
        main = kind if kind in fields else max(fields, key=lambda key: max(map(len, fields[key])))
        fields = {_MAIN: fields.pop(main), **fields}
    if kind == "text" or noun == _THINKING:
        return _Told(noun, fields, whole)
    return _Told(_NOUNS.get(kind, f"part of type {kind}"), fields)


def _texts_by_key(value: dict[str, Any]) -> dict[str, list[str]]:
    found = ((key, list(filter(str.strip, _texts_in(each)))) for key, each in value.items())
    return {key: texts for key, texts in found if texts}


def _texts_in(value: Any) -> list[str]:
    """Return the texts in a value; of a URL that holds bytes, these."""
    return [data_in(text)[1] or text if text.startswith("data:") else text for text in texts_in(value)]


# -- what records have ------------------------------------------------------------------------------------------------


class _Written:
    """The texts of records, also those of JSON in a text."""

    def __init__(self, records: Sequence[Any]) -> None:
        self._records, self._json = records, bytes_of(records)

    def missing(self, told: _Told) -> _Told:
        """Return what is told with the fields that are not here."""
        lost = {key: texts for key, texts in told.fields.items() if not all(map(self.__contains__, texts))}
        if _MAIN in lost and told.whole and told.whole in self:
            del lost[_MAIN]
        return told._replace(fields=lost)

    def __contains__(self, text: str) -> bool:
        if text in self._texts or urlsafe_b64encode(text.encode("utf-8", "replace")).decode() in self._texts:
            return True
        if text.startswith("{") and self._json.find(text.encode("utf-8", "replace")) >= 0:
            return True
        return self._has(json.dumps(text, ensure_ascii=False)[1:-1]) or self._has(*text.split("\n"))

    @cached_property
    def _texts(self) -> dict[str, None]:
        return dict.fromkeys(_texts_in(self._records))

    @cached_property
    def _joined(self) -> str:
        left = list(self._texts)
        while left:
            text = left.pop()
            if text.startswith(("{", "[")):
                found = [each for each in _texts_in(value_of(text)) if each not in self._texts]
                self._texts.update(dict.fromkeys(found))
                left += found
        return "\n".join(self._texts)

    def _has(self, *lines: str) -> bool:
        """Return whether a text has these lines, one after the other."""
        joined, at = self._joined, 0
        for line in filter(None, map(str.strip, lines)):
            at = joined.find(line, at)
            while at >= 0 and len(line) < _LONG and _is_in_word(joined, at, at + len(line)):
                at = joined.find(line, at + 1)
            if at < 0:
                return False
            at += len(line)
        return True


def _is_in_word(text: str, start: int, stop: int) -> bool:
    before, after = text[start - 1 : start], text[stop : stop + 1]
    return (before.isalnum() and text[start].isalnum()) or (after.isalnum() and text[stop - 1].isalnum())
