"""Claude Code's lines to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import force_setattr

from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    Source,
    SystemMessage,
)
from foldlog.formats.claude_code.attachments import prompt_of, words_of
from foldlog.formats.claude_code.blocks import THINKING, content_of, is_blank, kind_of, part_of, said
from foldlog.formats.claude_code.branches import Branch
from foldlog.formats.claude_code.compaction import Kept, ShownMembers, cleared_by, is_boundary, is_summary, metadata_of
from foldlog.formats.claude_code.context import ENVELOPE, LinesBefore
from foldlog.formats.claude_code.switches import Switches
from foldlog.formats.claude_code.titles import Titles
from foldlog.formats.claude_code.writing import NAME, SPEAKERS, Marks, predicted
from foldlog.formats.format import Options
from foldlog.formats.record import NotAnEvent, described, linked_to, read_time, text_or_empty

_TAKEN = frozenset(("type", "uuid", "parentUuid", "timestamp", *ENVELOPE))
"""The fields of a line that its Annotation does not repeat."""


_NAMED_MAX = 5
_CLEARED = (
    "a microcompaction cleared {} results for the model ({}), and the View shows them: no event can clear a result"
)


class ClaudeCodeDecoder:
    """Lines of one history to events, one line after the other.

    ``branch`` says which are shown, ``titles`` which bring a title.
    """

    def __init__(self, branch: Branch, titles: Titles, options: Options) -> None:
        self._branch = branch
        self._titles = titles
        self._options = options
        self._before = LinesBefore(options.first_id)
        self._standing = ShownMembers()
        self._switches = Switches(side=branch.is_side) if branch.branches else None
        self._boundary: dict[str, Any] = {}
        self._number = -1

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next line, at least one. Raises ``NotAnEvent`` if the line is not an event."""
        self._number += 1
        if type(record) is not dict:
            raise NotAnEvent(f"expected an event object, found {described(record)}")
        kind = record.get("type")
        if type(kind) is not str:
            raise NotAnEvent("the object has no text under 'type', which every line of Claude Code has")
        if self._switches is None:
            return self._read(kind, record, self._branch.shows(self._number, record))
        left = self._switches.before(record)
        switch: list[Event] = []
        if left is not None:
            timestamp, _ = read_time(record.get("timestamp"))
            origin = Origin(format=NAME)
            switch = [Retraction(id=self._before.next_id, version=left.version, timestamp=timestamp, origin=origin)]
            self._before.next_id += 1
            self._standing, self._boundary = left.standing.copy(), {}
        shown = self._branch.shows(self._number, record) and not self._switches.is_copy(record)
        events = self._read(kind, record, shown)
        self._switches.after(record, self._before.next_id, self._standing, left)
        return [*switch, *events]

    def find_call(self, call_id: str) -> tuple[int, str] | None:
        """Return the event and the tool of a call that no known earlier line made."""
        return None

    def _read(self, kind: str, record: dict[str, Any], shown: bool) -> list[Event]:
        """Return the events of a line itself."""
        marks: Marks = {}
        built = _Line(kind, record, shown, self._before, marks, self.find_call)
        if shown and is_boundary(record):
            self._boundary = record
        if shown and (cleared := cleared_by(record)):
            self._options.findings.append(_CLEARED.format(len(cleared), ", ".join(cleared[:_NAMED_MAX])))
        events = self._condensation(record, built) if shown and is_summary(record) else built.events()
        self._tell(record, events[0])
        if len(events) > 1:
            marks["events"] = len(events)
        difference = self._before.key_order.difference(predicted(events, marks, self._before), record)
        if marks or difference:
            force_setattr(built.origin, "rest", {**marks, **difference})  # no other code has it before it is returned
        self._before.add(events, record)
        for event in events:
            self._standing.follow(event, built.origin.id)
        return events

    def _tell(self, record: dict[str, Any], event: Event) -> None:
        """Keep the title of the session with an event, and with the first event the call that started the sub-agent."""
        title = self._titles.of(record)
        if title is not None:
            force_setattr(event, "meta", {"title": title})  # no other code has it before it is returned
        session = record.get("sessionId")
        if self._before.next_id == 0 and self._branch.is_side and type(session) is str and session:
            linked_to(f"{self._options.prefix}{session}", event)

    def _condensation(self, record: dict[str, Any], built: _Line) -> list[Event]:
        """Forget all present events except those that the boundary keeps. A summary without text is a message."""
        summary = _text_in(built.content)
        if not summary:
            return built.events()
        boundary, self._boundary = self._boundary, {}
        kept = Kept.by(boundary)
        forgotten, staying = self._standing.parted(kept)
        comes_last = kept.anchor is not None and kept.anchor == boundary.get("uuid")
        return [
            CondensationAction(
                forgotten_event_ids=forgotten,
                summary=summary,
                summary_offset=staying if comes_last else 0,
                metadata=metadata_of(boundary),
                **{**built.fields, "shown": False},
            )
        ]


def _text_in(content: Any) -> str:
    """Return the text of a summary: for blocks, one line for each text."""
    if type(content) is list:
        parts = (part_of(block) or {} for block in content)
        return "\n".join(part["text"] for part in parts if "text" in part)
    return text_or_empty(content)


class _Line:
    """One line that is being decoded. Content that no field of an event holds goes to ``marks``."""

    def __init__(
        self,
        kind: str,
        record: dict[str, Any],
        shown: bool,
        before: LinesBefore,
        marks: Marks,
        find_call: Callable[[str], tuple[int, str] | None],
    ) -> None:
        timestamp, time = read_time(record.get("timestamp"))
        self.origin = Origin(format=NAME, id=record.get("uuid"), time=time)
        self.fields: dict[str, Any] = {
            "id": before.next_id,
            "timestamp": timestamp,
            "origin": self.origin,
            "shown": shown,
        }
        message = record.get("message")
        self._message = message if type(message) is dict else {}
        self.content = self._message.get("content")
        self._kind, self._record, self._before, self._marks = kind, record, before, marks
        self._find_call = find_call
        self._events: list[Event] = []
        self._others: list[list[Any]] = []

    def events(self) -> list[Event]:
        if self._kind == "assistant" and type(self.content) is list:
            self._read_response(self.content)
        elif self._kind == "user" and type(self.content) is list:
            self._read_blocks(self.content)
        elif self._kind in SPEAKERS and type(self.content) is str:
            self._add_message(self.content, agent=self._kind == "assistant")
        elif self._kind == "attachment":
            self._read_attachment()
        if not self._events:
            return [self._annotation()]
        if self._others:
            self._marks["others"] = self._others
        return self._events

    def _read_attachment(self) -> None:
        """Read further context of the model: words in a message, or a new system prompt."""
        words, prompt = words_of(self._record), prompt_of(self._record)
        if not is_blank(words):
            self._marks["attachment"] = "words"
            self._events.append(Message(content=words, source="environment", **self.fields))
        elif prompt is not None:
            self._marks["attachment"] = "prompt"
            text, tools = prompt
            shown = self.fields["shown"] and prompt != self._before.prompt  # a snapshot may repeat the last one
            self._before.prompt = prompt
            self._events.append(SystemMessage(content=text, tools=tools, **{**self.fields, "shown": shown}))

    def _annotation(self) -> Annotation:
        if self._kind in SPEAKERS and type(self.content) is list:
            data: Any = self.content
        else:
            data = {key: value for key, value in self._record.items() if key not in _TAKEN}
        return Annotation(name=self._kind, data=data, **{**self.fields, "shown": False})

    def _next(self) -> dict[str, Any]:
        """Return the common fields of the next event of this line."""
        if not self._events:
            return self.fields
        place = len(self._events)
        return {**self.fields, "id": self._before.next_id + place, "origin": Origin(format=NAME)}

    def _add_message(self, content: Any, *, agent: bool = False) -> None:
        fields = self._next()
        if is_blank(content) or self._record.get("isApiErrorMessage") is True:  # no model wrote it
            fields = {**fields, "shown": False}
        source: Source = "environment" if self._record.get("isMeta") is True else "user"
        self._events.append(Message(content=content, source="agent" if agent else source, **fields))

    def _read_blocks(self, blocks: list[Any]) -> None:
        """Read the blocks of a user or a tool."""
        parts: list[Any] = []
        for place, block in enumerate(blocks):
            part = part_of(block)
            if part is not None:
                parts.append(part)
                continue
            if kind_of(block) != "tool_result":
                self._others.append([place, block])
                continue
            self._end_message(parts)
            self._add_observation(block)
        self._end_message(parts)

    def _end_message(self, parts: list[Any]) -> None:
        if parts:
            self._add_message(tuple(parts))
            parts.clear()

    def _add_observation(self, block: dict[str, Any]) -> None:
        call_id = block.get("tool_use_id")
        call_id = call_id if type(call_id) is str else None
        call = self._before.call(call_id)
        cause, tool = (call.event_id, call.tool) if call is not None else (None, "")
        if call is None and call_id is not None:
            cause, tool = self._find_call(call_id) or (None, "")
        self._events.append(
            Observation(
                content=content_of(block.get("content")),
                tool=tool,
                call_id=call_id,
                cause=cause,
                is_error=block.get("is_error") is True,
                **self._next(),
            )
        )

    def _read_response(self, blocks: list[Any]) -> None:
        """Read the blocks of a model: a text before a call is the call's thought."""
        response_id = self._message.get("id")
        if type(response_id) is not str:
            response_id = self.origin.id if type(self.origin.id) is str else None
        thinking = list(self._before.thinking(response_id))
        parts: list[Any] = []
        pondered: list[list[Any]] = []
        for place, block in enumerate(blocks):
            kind, part = kind_of(block), part_of(block)
            if part is not None:
                parts.append(part)
            elif kind in THINKING:
                thinking.append(block)
                pondered.append([place, block])
            elif kind != "tool_use":
                self._others.append([place, block])
            else:
                self._add_action(block, response_id, said(parts), thinking)
                parts.clear()
                thinking.clear()
                pondered.clear()
        if parts:
            self._add_message(said(parts), agent=True)
        self._others = sorted(self._others + pondered, key=lambda other: other[0])

    def _add_action(self, block: dict[str, Any], response_id: str | None, thought: Any, thinking: list[Any]) -> None:
        arguments, call_id = block.get("input"), block.get("id")
        self._events.append(
            Action(
                tool=text_or_empty(block.get("name")),
                arguments=arguments if type(arguments) is dict else None,
                call_id=call_id if type(call_id) is str else None,
                response_id=response_id,
                thought=thought,
                thinking=tuple(thinking),
                **self._next(),
            )
        )
