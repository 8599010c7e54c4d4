"""Codex records to events."""

from __future__ import annotations

import re
from typing import Any

from msgspec.structs import force_setattr

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Content,
    Event,
    Message,
    Observation,
    Origin,
    Source,
    SystemMessage,
)
from foldlog.formats.calls import OpenCalls
from foldlog.formats.codex.lines import line_of, parent_of
from foldlog.formats.codex.outcome import has_failed
from foldlog.formats.codex.parts import content_of, text_of, texts_in
from foldlog.formats.codex.repeats import INSTRUCTIONS, ITEMS, Repeats
from foldlog.formats.codex.said import Said, texts_of
from foldlog.formats.codex.shown import Shown
from foldlog.formats.codex.writing import NAME, ROLLED_BACK, Marks, predicted, predicted_payload, usual_line
from foldlog.formats.delta import delta
from foldlog.formats.format import Past
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.record import NotAnEvent, described, linked_to, read_time, rest_of

ABORTED = "aborted"
"""The text of Codex for a call that never got an output."""

_SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}
_CONTEXT = re.compile(r"\s*(?:<(\w+)[ >].*</\1>\s*$|# AGENTS\.md instructions)", re.DOTALL)
"""Messages that Codex itself writes as the user: a text in a tag, or instructions from files."""


class CodexDecoder:
    """Records of one history to events, one record after the other.

    It begins at the event ``first_id``, and asks ``past`` when a record needs what was before: what is shown, the open
    calls, and whether instructions were said.
    """

    def __init__(self, prefix: str = "", *, first_id: int = 0, past: Past | None = None) -> None:
        earlier = past if first_id else None
        self._prefix = prefix
        self._past = earlier
        self._key_order = KeyOrder()
        self._next_id = first_id
        self._repeats = Repeats()
        self._shown = Shown(earlier)
        self._open_calls = OpenCalls(earlier)
        self._said = Said(earlier)

    def restart(self, next_id: int) -> None:
        self._key_order = KeyOrder()
        self._repeats = Repeats()
        self._next_id = next_id

    def _replayed(self, place: int = 0) -> Event | None:
        """Return the stored event at ``place`` of the record, where a stored record is read again."""
        return None if self._past is None else self._past.replayed(self._next_id + place)

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next record: one event. For a compaction with a history, also one for each of its
        items.

        Raises ``NotAnEvent`` if the value is not a record.
        """
        if type(record) is not dict:
            raise NotAnEvent(f"expected a record object, found {described(record)}")
        read = line_of(record)
        if read is None:
            raise NotAnEvent("the object has no text under 'type', which every record of Codex has")
        line, payload, bare = read
        timestamp, time = read_time(record.get("timestamp"))
        marks: Marks = {"bare": True} if bare else {}
        events: list[Event] = []
        items: list[Any] = []
        if line == "compacted" and type(payload) is dict:
            event: Event = self._compacted(payload, events, items, marks)
        else:
            events += self._aborted(line, payload)
            event = self._event(line, payload, self._repeats, marks, len(events))
        force_setattr(event, "timestamp", timestamp)  # no other code has it before it is returned
        if event.origin is not None and time is not None:
            force_setattr(event.origin, "time", time)
        if usual_line(event) != line:
            marks["line"] = line
        made = predicted(event, marks, self._repeats, items)
        _keep(event, marks, self._key_order.difference(made, record))
        events.append(event)
        if self._next_id == 0 and line == "session_meta" and (parent := parent_of(payload)):
            linked_to(f"{self._prefix}{parent}", event)
        self._repeats.remember(read.record)
        self._next_id += len(events)
        return events

    def _aborted(self, line: str, payload: Any) -> list[Event]:
        """Return observations for the calls that were open when a turn was aborted, with Codex's own text for its
        model.
        """
        if line != "event_msg" or type(payload) is not dict or payload.get("type") != "turn_aborted":
            return []
        aborted: list[Event] = []
        for call_id, (cause, tool) in self._left_open():
            event = Observation(
                id=self._next_id + len(aborted),
                origin=Origin(format=NAME, rest={"aborted": True}),
                content=ABORTED,
                tool=tool,
                call_id=call_id,
                cause=cause,
                is_error=True,
            )
            self._shown.add(event)
            aborted.append(event)
        return aborted

    def _left_open(self) -> list[tuple[str, tuple[int, str]]]:
        """Close all open calls and return them. Where a stored record is read again, the stored events tell them."""
        place = 0
        closed: list[tuple[str, tuple[int, str]]] = []
        while (event := self._replayed(place)) is not None and "aborted" in rest_of(event, NAME):
            assert isinstance(event, Observation)
            assert event.call_id is not None
            assert event.cause is not None
            self._open_calls.answered(event.call_id)
            closed.append((event.call_id, (event.cause, event.tool)))
            place += 1
        return closed if event is not None else self._open_calls.close_all()

    def _event(self, line: str, payload: Any, repeats: Repeats, marks: Marks, place: int = 0) -> Event:
        """Return the event of a payload, which is at ``place`` of its record."""
        fields: dict[str, Any] = {"id": self._next_id + place, "origin": Origin(format=NAME)}
        if type(payload) is not dict:
            return Annotation(name=line, data=payload, **fields)
        if payload.get("id") is not None:
            fields["origin"] = Origin(format=NAME, id=payload["id"])
        name = payload.get("type") if line in ITEMS else line
        match line, name:
            case "response_item", "message":
                event = self._message(payload, fields)
            case "response_item", "function_call" | "custom_tool_call" | "local_shell_call":
                event = self._action(str(name), payload, fields, marks)
            case "response_item", "function_call_output" | "custom_tool_call_output":
                event = self._observation(str(name), payload, fields, marks, place)
            case "session_meta" | "turn_context", _ if keys := self._unsaid(line, payload):
                marks["at"] = keys
                event = self._instructions(line, [_instructions(payload[key]) for key in keys], fields)
            case "event_msg", "thread_rolled_back" if _turns(payload):
                marks["type"] = ROLLED_BACK
                forgotten = self._shown.roll_back(_turns(payload))
                self._open_calls.forget(frozenset(forgotten))
                event = CondensationAction(forgotten_event_ids=forgotten, **fields)
            case _:
                return _annotation(line, name if type(name) is str else line, payload, fields, repeats)
        self._shown.add(event, base=line == "session_meta")
        return event

    def _message(self, payload: dict[str, Any], fields: dict[str, Any]) -> Event:
        content, role = content_of(payload.get("content")), payload.get("role")
        texts = texts_in(payload.get("content"))
        if role == "developer" or role == "system":
            self._said.extend(texts_of(content))
            return SystemMessage(content=content, **fields)
        source = _SPEAKERS.get(role, "environment") if type(role) is str else "environment"
        if source == "user" and texts and all(_CONTEXT.match(text) for text in texts):
            source = "environment"
        if source != "agent":
            self._said.extend(texts_of(content))
        return Message(content=content, source=source, **fields)

    def _action(self, name: str, payload: dict[str, Any], fields: dict[str, Any], marks: Marks) -> Action:
        call_id, arguments, tool = payload.get("call_id"), payload.get("arguments"), payload.get("name")
        if name != "function_call":
            marks["type"] = name
        if name == "custom_tool_call":
            arguments = {"input": payload.get("input")}
        elif name == "local_shell_call":
            arguments, tool = payload.get("action"), "local_shell"
            call_id = payload.get("id") if call_id is None else call_id
        action = Action(
            tool=tool if type(tool) is str else "",
            arguments=arguments if type(arguments) is str or type(arguments) is dict else None,
            call_id=call_id if type(call_id) is str else None,
            **fields,
        )
        if action.call_id is not None:
            self._open_calls.open(action.call_id, action)
        return action

    def _observation(
        self, name: str, payload: dict[str, Any], fields: dict[str, Any], marks: Marks, place: int
    ) -> Observation:
        if name != "function_call_output":
            marks["type"] = name
        call_id, output = payload.get("call_id"), payload.get("output")
        content: Content = content_of(output)
        if type(output) is list:
            marks["output"] = "parts"
        elif type(output) is dict and type(output.get("content")) is str:
            marks["output"], content = "object", output["content"]
            fields["extras"] = {key: value for key, value in output.items() if key != "content"}
        cause, tool = self._answered(call_id, place) if type(call_id) is str else (None, "")
        return Observation(
            content=content,
            tool=tool,
            call_id=call_id if type(call_id) is str else None,
            cause=cause,
            is_error=has_failed(output),
            **fields,
        )

    def _answered(self, call_id: str, place: int) -> tuple[int | None, str]:
        """Return the event id and the tool of the call that an observation answers."""
        stored = self._replayed(place)
        if stored is None:
            return self._open_calls.close(call_id) or (None, "")
        if stored.cause is not None:
            self._open_calls.answered(call_id)
        return stored.cause, stored.tool if isinstance(stored, Observation) else ""

    def _unsaid(self, line: str, payload: dict[str, Any]) -> list[str]:
        """Return the keys under which the payload holds instructions that no earlier message held."""
        stored = self._replayed()
        if stored is not None:
            keys: list[str] = rest_of(stored, NAME).get("at", [])
            return keys
        keys = [
            key for key in INSTRUCTIONS[line] if (text := _instructions(payload.get(key))) and not self._said.says(text)
        ]
        return keys[:1] if line == "session_meta" else keys

    def _instructions(self, line: str, texts: list[str], fields: dict[str, Any]) -> SystemMessage:
        if line == "session_meta":
            self._said.set_base(texts[0])
        else:
            self._said.extend(texts)
        content = texts[0] if len(texts) == 1 else tuple({"type": "text", "text": text} for text in texts)
        return SystemMessage(content=content, **fields)

    def _compacted(
        self, payload: dict[str, Any], events: list[Event], items: list[Any], marks: Marks
    ) -> CondensationAction:
        """Return the condensation. Items of its history other than the summary are added to ``items``, and become
        ``events``.
        """
        said, history = payload.get("message"), payload.get("replacement_history")
        message = said if type(said) is str else ""
        forgotten, offset = self._shown.compact(but_instructions=type(history) is not list)
        self._open_calls.forget(frozenset(forgotten))
        summary = message
        if type(history) is list:
            marks["history"] = True
            summary = self._replace(history, message, events, items, marks)
            offset += sum(event.shown for event in events[: marks.get("summary", 0)])
        condensation_id = self._next_id + len(events)
        origin = Origin(format=NAME, id=payload.get("id"))
        fields: dict[str, Any] = {"id": condensation_id, "origin": origin, "forgotten_event_ids": forgotten}
        if summary:
            self._shown.summarize(condensation_id, offset)
            fields["summary"], fields["summary_offset"] = summary, offset
        return CondensationAction(**fields)

    def _replace(self, history: list[Any], message: str, events: list[Event], items: list[Any], marks: Marks) -> str:
        """Replace the shown items by ``history``. Return the text of its summary, empty if it has none."""
        self._open_calls = OpenCalls()
        self._said.clear()
        place = _place_of_summary(history, message)
        items += [item for number, item in enumerate(history) if number != place]
        events += [self._item(item, number) for number, item in enumerate(items)]
        if place is None:
            return ""
        marks["summary"] = place
        summary = texts_in(history[place]["content"])[0]
        if len(summary) > len(message):
            marks["prefix"] = len(summary) - len(message)
        return summary

    def _item(self, item: Any, place: int) -> Event:
        marks: Marks = {"item": True}
        event = self._event("response_item", item, Repeats(), marks, place)
        if type(item) is dict:
            made = predicted_payload(event, marks, Repeats())
            _keep(event, marks, self._key_order.difference(made, item))
        else:
            _keep(event, marks, None)
        return event


def _keep(event: Event, marks: Marks, difference: dict[str, Any] | None) -> None:
    if event.origin is not None and (marks or difference):
        force_setattr(event.origin, "rest", {**marks, **(difference or {})})


def _annotation(line: str, name: str, payload: dict[str, Any], fields: dict[str, Any], repeats: Repeats) -> Annotation:
    """Return an annotation for bookkeeping, with the part of it that was not predicted."""
    expected = dict(repeats.expected(line, name))
    if line in ITEMS:
        expected["type"] = name
    if payload.get("id") is not None:
        expected["id"] = payload["id"]
    data = {
        key: value for key, value in payload.items() if key not in expected or delta(expected[key], value) is not None
    }
    return Annotation(name=name, data=data, **fields)


def _turns(payload: dict[str, Any]) -> int:
    """Return the number of turns that are rolled back, if the payload names it."""
    turns = payload.get("num_turns")
    return turns if type(turns) is int and turns > 0 else 0


def _instructions(value: Any) -> str:
    """Return the text of instructions, which may be wrapped in an object."""
    text = value.get("text") if type(value) is dict else value
    return text if type(text) is str else ""


def _place_of_summary(history: list[Any], message: str) -> int | None:
    """Return the index of the summary in a replacement history: the last message with one text that ends with
    ``message``.
    """
    if not message:
        return None
    for place in range(len(history) - 1, -1, -1):
        item = history[place]
        if type(item) is dict and item.get("type") == "message":
            content = item.get("content")
            if type(content) is list and len(content) == 1 and text_of(content).endswith(message):
                return place
    return None
