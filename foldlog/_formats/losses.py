"""Find what events tell and their records do not, by comparing the texts of both."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, get_args

from msgspec.structs import replace

from foldlog._formats.blocks import thought_in
from foldlog._formats.format import Format, RecordEncoder
from foldlog._formats.packing import bytes_of, is_declined, value_of
from foldlog._formats.record import UNREAD, dict_or_empty, joined_text
from foldlog._formats.told import call_id_of, data_in
from foldlog._kinds import label
from foldlog._usage import IMPORTED
from foldlog._values import texts_in
from foldlog.eventstore import (
    ATTRIBUTES,
    Action,
    CondensationAction,
    CondensationSummary,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Source,
    SystemMessage,
)
from foldlog.projections import arguments_of

_HELD_MAX = 100
"""A writer that writes something has held back at most this many events."""
_LONG = 16
"""A line of this length in a text is the line that is sought; a shorter one only if it is a whole word."""
_MAIN = ""
"""The key of the field for which a part is there. If that is lost, its other fields are not counted."""
_GIVEN, _THINKING = "argument", "thinking block"
_NOUNS = {"image_url": "image", "file": "file"}
_NAMES = {"system": "system prompt", "error": "observation", "redaction": "redaction receipt"}
_OF_CHAT = ("message", "call", "blocks")
"""Keys of ``meta`` for the fields of a chat message that events lack."""
_COUNTS = frozenset(("usage", "cost"))
"""Keys of ``meta`` that no format writes for an event that was not imported."""


class _Told(NamedTuple):
    """A part of what an event tells: the texts of each field. The text ``whole`` stands for those of the main one."""

    noun: str
    fields: dict[str, list[str]]
    whole: str = ""


class Losses:
    """What of the events of one history no record has."""

    def __init__(self, format: Format) -> None:
        self._format = format
        self._counts: Counter[str] = Counter()
        """The number of losses, by a noun in the singular."""
        self._hidden: Counter[str] = Counter()
        self._sought: list[tuple[Event, list[_Told] | None]] = []
        """Events with what was not found yet of each; None before a search."""

    def leave_out(self, event: Event, *, hidden: bool = False) -> None:
        """Count an event that has no record, because no model was shown it (``hidden``) or the format has none."""
        is_of_import = isinstance(event, DocumentChanges) and event.changed.keys() <= {IMPORTED, UNREAD}
        if not (is_of_import or is_declined(event)):
            (self._hidden if hidden else self._counts)[_name(event)] += 1

    def seek(self, event: Event, writer: RecordEncoder) -> None:
        """Look for what an event tells in the records that ``writer`` makes from now on."""
        self._counts["count of tokens and cost"] += not _COUNTS.isdisjoint(event.meta)
        self._counts["error mark"] += isinstance(event, Observation) and event.is_error and not self._marks_errors
        self._counts["place of a summary among what is kept"] = writer.misplaced
        if isinstance(event, SystemMessage) and self._says_prompt:
            self._counts[f"role of a system prompt (written as words of the {self._says_prompt})"] += 1
        self._sought.append((event, None))

    def look_in(self, records: Sequence[Any]) -> None:
        """Look in these records. If they have the id of a call, or any text of another event, that is written, and what
        they do not have of it is lost. Cost: the records, and the events that are sought.
        """
        if not records:
            return
        written, later = _Written(records), list[tuple[Event, list[_Told] | None]]()
        for event, told in self._sought:
            if told is None and written.has_all(event):
                continue
            told = _told_by(event) if told is None else told
            missing = [each for each in map(written.missing, told) if each.fields]
            is_written = call_id_of(event) in written if isinstance(event, Action) else missing != told
            if is_written:
                self._count(missing)
            elif missing:
                later.append((event, missing))
        self._sought = later[-_HELD_MAX:]
        for _, told in later[:-_HELD_MAX]:
            self._count(told or ())

    def end(self) -> list[str]:
        """Return what no model was shown, and what is lost, in words. What was not found is lost."""
        for event, told in self._sought:
            self._count(_told_by(event) if told is None else told)
        counts = (self._hidden, self._counts)
        return [", ".join(several(number, noun) for noun, number in each.items() if number) for each in counts]

    def _count(self, missing: Iterable[_Told]) -> None:
        for noun, fields, _ in missing:
            self._counts.update([noun] if _MAIN in fields else [f"value of {key}" for key in fields])

    @cached_property
    def _marks_errors(self) -> bool:
        """Whether the format writes a result in another way if its call failed."""
        call, result = Action(id=0, tool="x", call_id="x"), Observation(id=1, content="", call_id="x", cause=0)
        return self._written(call, result) != self._written(call, replace(result, is_error=True))

    @cached_property
    def _says_prompt(self) -> str | None:
        """Return whose message is written as a system prompt is; None where the format tells them apart."""
        first = Message(id=0, source="user", content="x")
        said = {each: self._written(first, replace(first, id=1, source=each)) for each in get_args(Source)}
        prompt = self._written(first, SystemMessage(id=1, content="x"))
        return next((source for source, records in said.items() if records == prompt), None)

    def _written(self, *events: Event) -> list[Any]:
        writer = self._format.writer()
        return [*(record for event in events for record in writer.records(event) or ()), *writer.end()]


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

    def has_all(self, event: Event) -> bool:
        """Return whether all that an event tells is here word for word, as most formats write most events: that takes a
        fraction of the time of ``missing``.
        """
        for noun, value in _values_of(event):
            is_here = self._json.find(bytes_of(value)) >= 0
            if not is_here and noun == _GIVEN and isinstance(event, Action):
                other = value_of(value) if isinstance(value, str) else arguments_of(event)
                is_here = self._json.find(bytes_of(other)) >= 0
            if not is_here:
                return False
        return True

    def missing(self, told: _Told) -> _Told:
        """Return what is told with the fields that are not here."""
        lost = {key: texts for key, texts in told.fields.items() if not all(map(self.__contains__, texts))}
        if _MAIN in lost and told.whole and told.whole in self:
            del lost[_MAIN]
        return told._replace(fields=lost)

    def __contains__(self, text: str) -> bool:
        if text in self._texts or urlsafe_b64encode(text.encode("utf-8", "replace")).decode() in self._texts:
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
