"""Codex records to events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.calls import OpenCalls
from foldlog._formats.codex.lines import line_of, parent_of
from foldlog._formats.codex.outcome import has_failed
from foldlog._formats.codex.parts import content_of, place_of_summary, texts_in
from foldlog._formats.codex.said import BASE, Said, is_base, texts_of
from foldlog._formats.codex.writing import NAME
from foldlog._formats.format import Options, Past, RecordDecoder
from foldlog._formats.members import Members
from foldlog._formats.record import NotAnEvent, described, linked_to, read_time
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
    summary_id,
)

ABORTED = "aborted"
"""The text of Codex for a call that never got an output."""

_ITEMS = ("response_item", "event_msg")
"""Types of records whose payloads have types of their own."""
_REPEATS = {"user_message": ("message", "images"), "agent_message": ("message",), "agent_reasoning": ("text",)}
"""Fields of bookkeeping that repeat what other records say: only the record holds them."""
_INSTRUCTIONS = {
    "session_meta": ("base_instructions", "instructions"),
    "turn_context": ("base_instructions", "developer_instructions", "user_instructions"),
}
"""The keys under which a record may have instructions."""

_OTHER, _TURN, _INSTRUCTED, _BASE = range(4)
"""What a member of the View is: a message of the user begins a turn; base instructions are never forgotten, because
they are part of every request.
"""

_SPEAKERS: dict[str, Source] = {"user": "user", "assistant": "agent"}
_CONTEXT = re.compile(r"\s*(?:<(\w+)[ >].*</\1>\s*$|# AGENTS\.md instructions)", re.DOTALL)
"""Messages that Codex itself writes as the user: a text in a tag, or instructions from files."""


class CodexDecoder(RecordDecoder):
    """Records of one history to events, one record after the other.

    It asks ``Options.past`` when a record needs what was before: what is shown, the open calls, and whether
    instructions were said.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        earlier = options.past if options.first_id else None
        self._prefix = options.prefix
        self._shown = Members(None if earlier is None else partial(_earlier_members, earlier))
        self._open_calls = OpenCalls(earlier)
        self._said = Said(earlier)

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
        line, payload = read
        timestamp, time = read_time(record.get("timestamp"))
        if line == "compacted" and type(payload) is dict:
            events = self._compacted(payload)
        else:
            events = self._aborted(line, payload)
            events.append(self._event(line, payload, len(events)))
        event = events[-1]
        force_setattr(event, "timestamp", timestamp)  # no other code has it before it is returned
        if event.origin is not None and time is not None:
            force_setattr(event.origin, "time", time)
        if self.next_id == 0 and line == "session_meta" and (parent := parent_of(payload)):
            linked_to(f"{self._prefix}{parent}", event)
        self.next_id += len(events)
        return events

    def _aborted(self, line: str, payload: Any) -> list[Event]:
        """Return observations for the calls that were open when a turn was aborted, with Codex's own text for its
        model.
        """
        if line != "event_msg" or type(payload) is not dict or payload.get("type") != "turn_aborted":
            return []
        aborted: list[Event] = []
        for call_id, (cause, tool) in self._open_calls.close_all():
            event = Observation(
                id=self.next_id + len(aborted),
                origin=Origin(format=NAME),
                content=ABORTED,
                tool=tool,
                call_id=call_id,
                cause=cause,
                is_error=True,
            )
            self._show(event)
            aborted.append(event)
        return aborted

    def _event(self, line: str, payload: Any, place: int = 0) -> Event:
        """Return the event of a payload, which is at ``place`` of its record."""
        fields: dict[str, Any] = {"id": self.next_id + place, "origin": Origin(format=NAME)}
        if type(payload) is not dict:
            return Annotation(name=line, data=payload, **fields)
        if payload.get("id") is not None:
            fields["origin"] = Origin(format=NAME, id=payload["id"])
        name = payload.get("type") if line in _ITEMS else line
        match line, name:
            case "response_item", "message":
                event = self._message(payload, fields)
            case "response_item", "function_call" | "custom_tool_call" | "local_shell_call":
                event = self._action(str(name), payload, fields)
            case "response_item", "function_call_output" | "custom_tool_call_output":
                event = self._observation(payload, fields)
            case "session_meta" | "turn_context", _ if keys := self._unsaid(line, payload):
                fields["meta"] = {"model": payload["model"]} if type(payload.get("model")) is str else {}
                event = self._instructions(line, [_instructions(payload[key]) for key in keys], fields)
            case "event_msg", "thread_rolled_back" if _turns(payload):
                forgotten = self._rolled_back(_turns(payload))
                self._open_calls.forget(frozenset(forgotten))
                event = CondensationAction(forgotten_event_ids=forgotten, **fields)
            case _:
                return _annotation(line, name if type(name) is str else line, payload, fields)
        self._show(event, base=line == "session_meta")
        return event

    def _show(self, event: Event, *, base: bool = False) -> None:
        if event.shown:
            self._shown.add(event.id, _role(event, base=base))

    def _forget(self, first: int, kept: int) -> tuple[int, ...]:
        """Forget what is shown from the place ``first`` on and has a lesser role than ``kept``. Return the ids."""
        members = self._shown.all()
        last = members[first:]
        self._shown.replace(members[:first] + [member for member in last if member[1] >= kept])
        return tuple(event_id for event_id, role in last if role < kept)

    def _rolled_back(self, turns: int) -> tuple[int, ...]:
        """Forget the last turns with their events. Return the ids. A turn begins with a message of the user."""
        members = self._shown.all()
        begins = [place for place, (_, role) in enumerate(members) if role == _TURN][-turns:]
        return self._forget(begins[0] if begins else len(members), _BASE)

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

    def _action(self, name: str, payload: dict[str, Any], fields: dict[str, Any]) -> Action:
        call_id, arguments, tool = payload.get("call_id"), payload.get("arguments"), payload.get("name")
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
        self._open_calls.open(action)
        return action

    def _observation(self, payload: dict[str, Any], fields: dict[str, Any]) -> Observation:
        output = payload.get("output")
        content: Content = content_of(output)
        if type(output) is dict and type(output.get("content")) is str:
            content = output["content"]
            fields["extras"] = {key: value for key, value in output.items() if key != "content"}
        call_id, cause, tool = self._open_calls.close(payload.get("call_id"))
        return Observation(
            content=content,
            tool=tool,
            call_id=call_id,
            cause=cause,
            is_error=has_failed(output),
            **fields,
        )

    def _unsaid(self, line: str, payload: dict[str, Any]) -> list[str]:
        """Return the keys under which the payload holds instructions that no earlier message held."""
        keys = [
            key
            for key in _INSTRUCTIONS[line]
            if (text := _instructions(payload.get(key))) and not self._said.says(text)
        ]
        return keys[:1] if line == "session_meta" else keys

    def _instructions(self, line: str, texts: list[str], fields: dict[str, Any]) -> SystemMessage:
        if line == "session_meta":
            self._said.set_base(texts[0])
            fields["meta"] = {**fields["meta"], **BASE}
        else:
            self._said.extend(texts)
        content = texts[0] if len(texts) == 1 else tuple({"type": "text", "text": text} for text in texts)
        return SystemMessage(content=content, **fields)

    def _compacted(self, payload: dict[str, Any]) -> list[Event]:
        """Return the condensation, after the events of the items of its history other than the summary."""
        said, history = payload.get("message"), payload.get("replacement_history")
        summary = said if type(said) is str else ""
        forgotten = self._forget(0, _BASE if type(history) is list else _INSTRUCTED)
        offset = len(self._shown.all())
        self._open_calls.forget(frozenset(forgotten))
        events: list[Event] = []
        if type(history) is list:
            self._open_calls = OpenCalls()
            self._said.clear()
            place = place_of_summary(history, summary)
            items = [item for number, item in enumerate(history) if number != place]
            events += [self._event("response_item", item, number) for number, item in enumerate(items)]
            summary = "" if place is None else texts_in(history[place]["content"])[0]
            offset += sum(event.shown for event in events[: place or 0])
        condensation_id = self.next_id + len(events)
        origin = Origin(format=NAME, id=payload.get("id"))
        fields: dict[str, Any] = {"id": condensation_id, "origin": origin, "forgotten_event_ids": forgotten}
        if summary:
            members = self._shown.all()
            members.insert(offset, (summary_id(condensation_id), _OTHER))
            self._shown.replace(members)
            fields["summary"], fields["summary_offset"] = summary, offset
        return [*events, CondensationAction(**fields)]


def _earlier_members(past: Past) -> Iterator[tuple[int, int]]:
    return ((event.id, _role(event, base=is_base(event))) for event in past.view())


def _role(event: Event, *, base: bool) -> int:
    if isinstance(event, SystemMessage):
        return _BASE if base else _INSTRUCTED
    return _TURN if isinstance(event, Message) and event.source == "user" else _OTHER


def _annotation(line: str, name: str, payload: dict[str, Any], fields: dict[str, Any]) -> Annotation:
    taken = ("id", "type", *_REPEATS.get(name, ())) if line in _ITEMS else ("id",)
    return Annotation(name=name, data={key: value for key, value in payload.items() if key not in taken}, **fields)


def _turns(payload: dict[str, Any]) -> int:
    """Return the number of turns that are rolled back, if the payload names it."""
    turns = payload.get("num_turns")
    return turns if type(turns) is int and turns > 0 else 0


def _instructions(value: Any) -> str:
    """Return the text of instructions, which may be wrapped in an object."""
    text = value.get("text") if type(value) is dict else value
    return text if type(text) is str else ""
