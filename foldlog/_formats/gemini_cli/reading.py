"""Gemini CLI's records to events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from msgspec.structs import force_setattr

from foldlog._formats.format import Options, RecordDecoder
from foldlog._formats.gemini_cli.parts import content_of, parts_of, result_of, thought_of, usage_of
from foldlog._formats.gemini_cli.writing import NAME
from foldlog._formats.members import Members
from foldlog._formats.record import NotAnEvent, described, dicts_in, joined_text, read_time, text_or_empty
from foldlog.eventstore import Action, Annotation, CondensationAction, Event, Message, Observation, Origin, Retraction

_SNAPSHOT = "<state_snapshot>"
_CONTEXTS = ("<session_context>", "<hook_context>", _SNAPSHOT)
"""The beginnings of what Gemini CLI says as the user."""
_FAILED = ("error", "cancelled")

_Part = dict[str, Any]


def session_in(record: Any) -> str | None:
    name = record.get("sessionId") if type(record) is dict and "projectHash" in record else None
    return name if type(name) is str and name else None


def accepts(record: Any) -> bool:
    if type(record) is not dict:
        return False
    is_message = type(record.get("id")) is str and type(record.get("type")) is str
    is_change = type(record.get("$set")) is dict or type(record.get("$rewindTo")) is str
    return is_message or is_change or session_in(record) is not None


class _Stands(NamedTuple):
    """A message that a View shows, or that is bookkeeping: its record, and the version after its events."""

    record: Any
    end: int
    shown: bool


class GeminiDecoder(RecordDecoder):
    """Records of one session to events, one record after the other. Memory: the messages that stand."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._messages: list[_Stands] = []
        self._places: dict[str, int] = {}
        self._shown = Members[None]()
        self._calls: dict[str, list[Any]] = {}
        """The call of each id: its event, its tool, and the event that answered it."""
        self._events: list[Event] = []
        self._common: _Part = {}

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record. Raises ``NotAnEvent`` where Gemini CLI writes no such."""
        if not accepts(record):
            found = "an object without them" if type(record) is dict else described(record)
            raise NotAnEvent(
                f"a record of Gemini CLI has an id and a type, a sessionId, $set or $rewindTo, found {found}"
            )
        self._events = []
        self._origin = Origin(format=NAME, id=record.get("id"))
        rewound, changed = record.get("$rewindTo"), record.get("$set")
        session = changed if type(changed) is dict else record
        if type(rewound) is str:
            self._replace(self._places.get(rewound, 0), ())
        elif type(record.get("id")) is str:
            self._add_message(record)
        elif type(session.get("messages")) is list:
            self._set([each for each in session["messages"] if type(each) is dict])
        if not any(not isinstance(event, Retraction) for event in self._events):
            self._add(Annotation, name=str(record.get("type") or next(iter(record))))
        title, first = session.get("summary"), self._events[-1]
        if "id" not in record and type(title) is str and title.strip():
            force_setattr(first, "meta", {**first.meta, "title": title})  # no other code has it before it is returned
        self.next_id += len(self._events)
        return self._events

    def _add(self, kind: Any, **fields: Any) -> int:
        event_id = self.next_id + len(self._events)
        is_first = kind is not Retraction and all(isinstance(event, Retraction) for event in self._events)
        origin = self._origin if is_first else Origin(format=NAME)
        event = kind(id=event_id, origin=origin, **self._common, **fields)
        self._events.append(event)
        self._shown.follow(event, None)
        return event_id

    def _add_message(self, record: _Part) -> None:
        place = self._places.get(record["id"])
        if place is None:
            self._replace(len(self._messages), (record,))
        elif self._messages[place].record != record:
            self._replace(place, (record, *(each.record for each in self._messages[place + 1 :])))

    def _set(self, messages: Sequence[_Part]) -> None:
        same = sum(
            1 for _ in takewhile(lambda pair: pair[0].record == pair[1], zip(self._messages, messages, strict=False))
        )
        following = messages[same:]
        known = any(each.record.get("id") == following[0].get("id") for each in self._messages) if following else True
        snapshot = joined_text(content_of(following[0].get("content"))) if following else ""
        if known or following[0].get("type") != "user" or _SNAPSHOT not in snapshot:
            self._replace(same, following)
            return
        version = self._messages[same - 1].end if same else 0
        members = [event_id for event_id, _ in self._shown.all()]
        kept = [each for each in members if 0 <= each < version]
        gone = tuple(each for each in members if each not in set(kept))
        self._common = {"timestamp": read_time(following[0].get("timestamp"))[0]}
        self._add(
            CondensationAction, forgotten_event_ids=gone, summary=snapshot, summary_offset=len(kept),
            metadata={"reason": "tokens"},
        )  # fmt: skip
        self._drop(same)
        self._places[str(following[0].get("id"))] = same
        self._messages.append(_Stands(following[0], self.next_id + len(self._events), shown=True))
        self._replace(same + 1, following[1:])

    def _replace(self, place: int, records: Iterable[_Part]) -> None:
        """Take the messages from ``place`` on back, if they are shown, and add others."""
        version = self._messages[place - 1].end if place else 0
        if any(each.shown for each in self._messages[place:]):
            self._common = {}
            self._add(Retraction, version=version)
            for call_id, (event_id, _, answer) in list(self._calls.items()):
                if event_id >= version:
                    del self._calls[call_id]
                elif answer is not None and answer >= version:
                    self._calls[call_id][2] = None
        self._drop(place)
        for record in records:
            before = len(self._events)
            self._common = {"timestamp": read_time(record.get("timestamp"))[0]}
            self._read(record)
            added = self._events[before:]
            self._places.setdefault(str(record.get("id")), len(self._messages))
            self._messages.append(_Stands(record, self.next_id + len(self._events), any(each.shown for each in added)))

    def _drop(self, place: int) -> None:
        for each in self._messages[place:]:
            self._places.pop(str(each.record.get("id")), None)
        del self._messages[place:]

    def _read(self, record: _Part) -> None:
        parts = parts_of(record.get("content"))
        if record.get("type") == "user":
            responses = [part["functionResponse"] for part in parts if type(part.get("functionResponse")) is dict]
            for response in responses:
                self._answer(response.get("id"), [{"functionResponse": response}], text_or_empty(response.get("name")))
            content = content_of(record.get("content"))
            text = joined_text(content).strip()
            if content and (text or not isinstance(content, str)):
                source = "environment" if text.startswith(_CONTEXTS) else "user"
                self._add(Message, content=content, source=source, shown=not text.startswith(("/", "?")))
        elif record.get("type") == "gemini":
            first = self.next_id + len(self._events)
            self._read_response(record, parts)
            used = usage_of(record)
            if used and first < self.next_id + len(self._events):
                force_setattr(self._events[first - self.next_id], "meta", used)  # as above

    def _read_response(self, record: _Part, parts: list[_Part]) -> None:
        """Read what the model said: its content if that has calls or thoughts, else the fields beside it."""
        results = {each.get("id"): each for each in dicts_in(record.get("toolCalls")) if type(each.get("id")) is str}
        calls = [part["functionCall"] for part in parts if type(part.get("functionCall")) is dict]
        thoughts = [text_or_empty(part.get("text")) for part in parts if part.get("thought") is True]
        if not calls and not thoughts:
            thoughts = [thought_of(each) for each in dicts_in(record.get("thoughts"))]
            calls = dicts_in(record.get("toolCalls"))
        content = content_of([part for part in parts if part.get("thought") is not True])
        said: _Part = {"thinking": tuple({"type": "thinking", "thinking": text} for text in thoughts if text)}
        if not calls and content:
            self._add(Message, content=content, source="agent", **said)
        for call in calls:
            call_id = call.get("id") if type(call.get("id")) is str else None
            tool, given = text_or_empty(call.get("name")), call.get("args")
            arguments = given if type(given) is dict else None
            event_id = self._add(
                Action, tool=tool, arguments=arguments, call_id=call_id, response_id=str(record.get("id")),
                thought=content, **said,
            )  # fmt: skip
            content, said = "", {}
            if call_id is not None:
                self._calls[call_id] = [event_id, tool, None]
        for call in calls:
            result = results.get(call.get("id"), {}) if type(call.get("id")) is str else {}
            if result.get("result"):
                self._answer(call["id"], result["result"], "", is_error=result.get("status") in _FAILED)

    def _answer(self, call_id: Any, result: Any, tool: str, *, is_error: bool = False) -> None:
        """Add a result. A second one of the same call is not shown."""
        call = self._calls.get(call_id) if type(call_id) is str else None
        cause, tool, answer = call or (None, tool, None)
        content, has_failed = result_of(result)
        event_id = self._add(
            Observation, content=content, tool=tool, call_id=call_id if type(call_id) is str else None, cause=cause,
            is_error=is_error or has_failed, shown=call is not None and answer is None,
        )  # fmt: skip
        if call is not None and answer is None:
            call[2] = event_id
