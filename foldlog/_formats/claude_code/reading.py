"""Claude Code's lines to events."""

from __future__ import annotations

from typing import Any

from msgspec.structs import force_setattr

from foldlog._formats.blocks import THINKING, content_of, is_blank, kind_of, part_of, said
from foldlog._formats.calls import OpenCalls
from foldlog._formats.claude_code.attachments import prompt_of, words_of
from foldlog._formats.claude_code.branches import SAID, ShownChain, Switches, is_side
from foldlog._formats.claude_code.compaction import Kept, cleared_by, is_boundary, is_summary, metadata_of, parted
from foldlog._formats.claude_code.titles import Titles
from foldlog._formats.claude_code.writing import ENVELOPE, NAME
from foldlog._formats.format import Options, RecordDecoder
from foldlog._formats.members import Members
from foldlog._formats.recent import Recent
from foldlog._formats.record import NotAnEvent, described, linked_to, read_time, text_or_empty, usage_told
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

_RESPONSES_MAX = 100
"""Side chains run at the same time, so that the lines of several responses alternate."""
_TAKEN = frozenset(("type", "uuid", "parentUuid", "timestamp", *ENVELOPE))
"""The fields of a line that its Annotation does not repeat."""


_NAMED_MAX = 5
_CLEARED = (
    "a microcompaction cleared {} results for the model ({}), and the View shows them: no event can clear a result"
)


class ClaudeCodeDecoder(RecordDecoder):
    """Lines of one history to events, one line after the other, of which those of one chain are shown."""

    def __init__(self, options: Options, chain: ShownChain) -> None:
        super().__init__(options)
        self._side = chain.side
        self._titles = Titles()
        self._options = options
        self._calls = OpenCalls(options.past)
        self._thinking: Recent[str, tuple[dict[str, Any], ...]] = Recent(_RESPONSES_MAX)
        """The thinking of the last responses since their last actions."""
        self._prompt: Any = None
        self._shown = Members[str | None]()
        self._switches = Switches(chain)
        self._boundary: dict[str, Any] = {}
        self._session: Any = None

    def events(self, record: Any) -> list[Event]:
        """Return the events of the next line, at least one. Raises ``NotAnEvent`` if the line is not an event."""
        if type(record) is not dict:
            raise NotAnEvent(f"expected an event object, found {described(record)}")
        kind = record.get("type")
        if type(kind) is not str:
            raise NotAnEvent("the object has no text under 'type', which every line of Claude Code has")
        left = self._switches.before(record)
        switch: list[Event] = []
        if left is not None:
            timestamp, _ = read_time(record.get("timestamp"))
            origin = Origin(format=NAME)
            switch = [Retraction(id=self.next_id, version=left.version, timestamp=timestamp, origin=origin)]
            self.next_id += 1
            self._shown.newest, self._boundary = left.shown, {}
        shown = is_side(record) == self._side and not self._switches.is_copy(record)
        events = self._read(kind, record, shown)
        self._switches.after(record, self.next_id, self._shown.newest, left)
        if shown and kind in SAID:
            self._name_session(record.get("sessionId"), begins=left is not None and not left.version)
        return [*switch, *events]

    def _name_session(self, session: Any, *, begins: bool) -> None:
        """Keep the session of a shown line. A line that begins another one hides the lines before it."""
        if begins and session != self._session:
            self._options.findings.append(
                f"begins the session {session!r}: from here on the View shows it, and the lines of "
                f"{self._session!r} are kept and not shown; import each from a file of its own"
            )
        self._session = session

    def _earlier_thinking(self, response_id: str) -> tuple[dict[str, Any], ...]:
        return ()

    def _earlier_prompt(self) -> Any:
        """Return the system prompt and the tools before the first line."""
        return None

    def _read(self, kind: str, record: dict[str, Any], shown: bool) -> list[Event]:
        timestamp, time = read_time(record.get("timestamp"))
        origin = Origin(format=NAME, id=record.get("uuid"), time=time)
        line = _Line(kind, record, {"timestamp": timestamp, "shown": shown}, origin, self.next_id)
        if shown and is_boundary(record):
            self._boundary = record
        if shown and (cleared := cleared_by(record)):
            self._options.findings.append(_CLEARED.format(len(cleared), ", ".join(cleared[:_NAMED_MAX])))
        self._read_into(line)
        events = self._condensation(line) if shown and is_summary(record) else line.all_events()
        self._tell(record, events[0])
        for event in events:
            if type(event) is Action:
                self._calls.open(event)
            self._shown.follow(event, origin.id if type(origin.id) is str else None)
        self.next_id += len(events)
        return events

    def _read_into(self, line: _Line) -> None:
        if line.kind == "assistant" and type(line.content) is list:
            self._read_response(line, line.content)
        elif line.kind == "user" and type(line.content) is list:
            self._read_blocks(line, line.content)
        elif line.kind in SAID and type(line.content) is str:
            line.add_message(line.content, agent=line.kind == "assistant")
        elif line.kind == "attachment":
            self._read_attachment(line)

    def _read_attachment(self, line: _Line) -> None:
        """Read further context of the model: words in a message, or a new system prompt."""
        words, prompt = words_of(line.record), prompt_of(line.record)
        if not is_blank(words):
            line.add(Message, content=words, source="environment")
        elif prompt is not None:
            before = self._prompt or self._earlier_prompt()
            self._prompt = prompt
            text, tools = prompt
            line.add(SystemMessage, content=text, tools=tools, hidden=prompt == before)  # one may repeat the last one

    def _read_blocks(self, line: _Line, blocks: list[Any]) -> None:
        parts: list[Any] = []
        for block in blocks:
            part = part_of(block)
            if part is not None:
                parts.append(part)
            elif kind_of(block) == "tool_result":
                line.end_message(parts)
                self._add_observation(line, block)
        line.end_message(parts)

    def _add_observation(self, line: _Line, block: dict[str, Any]) -> None:
        call_id, cause, tool = self._calls.close(block.get("tool_use_id"))
        content, is_error = content_of(block.get("content")), block.get("is_error") is True
        line.add(Observation, content=content, tool=tool, call_id=call_id, cause=cause, is_error=is_error)

    def _read_response(self, line: _Line, blocks: list[Any]) -> None:
        """Read the blocks of a model: a text before a call is the call's thought."""
        response_id = line.message.get("id")
        if type(response_id) is not str:
            response_id = line.origin.id if type(line.origin.id) is str else None
        thinking: list[Any] = []
        if response_id is not None:
            known = self._thinking.get(response_id)
            thinking += self._earlier_thinking(response_id) if known is None else known
        parts: list[Any] = []
        for block in blocks:
            kind, part = kind_of(block), part_of(block)
            if part is not None:
                parts.append(part)
            elif kind in THINKING:
                thinking.append(block)
            elif kind == "tool_use":
                line.add_action(block, response_id, said(parts), thinking)
                parts.clear()
                thinking.clear()
        if response_id is not None:
            self._thinking[response_id] = tuple(thinking)
        if parts:
            line.add_message(said(parts), agent=True)

    def _tell(self, record: dict[str, Any], event: Event) -> None:
        """Keep the title of the session and the usage of the response with an event, and with the first event the call
        that started the sub-agent.
        """
        title, used = self._titles.of(record), usage_in(record.get("message"), record.get("requestId"))
        if title is not None or used:
            told = used if title is None else {**used, "title": title}
            force_setattr(event, "meta", told)  # no other code has it before it is returned
        session = record.get("sessionId")
        if self.next_id == 0 and self._side and type(session) is str and session:
            linked_to(f"{self._options.prefix}{session}", event)

    def _condensation(self, line: _Line) -> list[Event]:
        """Forget all present events except those that the boundary keeps. A summary without text is a message."""
        summary = _text_in(line.content)
        if not summary:
            return line.all_events()
        boundary, self._boundary = self._boundary, {}
        kept = Kept.by(boundary)
        forgotten, staying = parted(self._shown.all(), kept)
        comes_last = kept.anchor is not None and kept.anchor == boundary.get("uuid")
        return [
            CondensationAction(
                id=self.next_id,
                origin=line.origin,
                timestamp=line.common["timestamp"],
                forgotten_event_ids=forgotten,
                summary=summary,
                summary_offset=staying if comes_last else 0,
                metadata=metadata_of(boundary),
            )
        ]


def usage_in(message: Any, request: Any = None) -> dict[str, Any]:
    """Return the usage of a response as events have it, and its id: each of its lines has the usage up to it.

    The id is that of the message with that of its ``request``: some servers give the same one to many messages.
    """
    if type(message) is not dict or "usage" not in message:
        return {}
    reply = message.get("id")
    if type(reply) is str and type(request) is str:
        reply = f"{reply} {request}"
    return usage_told(message["usage"], model=message.get("model"), reply=reply)


def _text_in(content: Any) -> str:
    """Return the text of a summary: for blocks, one line for each text."""
    if type(content) is list:
        parts = (part_of(block) or {} for block in content)
        return "\n".join(part["text"] for part in parts if "text" in part)
    return text_or_empty(content)


class _Line:
    """One line that is being decoded: its parts, and its events so far. ``common`` are the fields of all its events."""

    def __init__(
        self, kind: str, record: dict[str, Any], common: dict[str, Any], origin: Origin, first_id: int
    ) -> None:
        self.kind, self.record, self.common, self.origin = kind, record, common, origin
        message = record.get("message")
        self.message = message if type(message) is dict else {}
        self.content = self.message.get("content")
        self._first_id = first_id
        self._events: list[Event] = []

    def all_events(self) -> list[Event]:
        """Return the events of the line; an annotation if it has no other."""
        if not self._events:
            data: Any = self.content
            if self.kind not in SAID or type(data) is not list:
                data = {key: value for key, value in self.record.items() if key not in _TAKEN}
            self.add(Annotation, name=self.kind, data=data, hidden=True)
        return self._events

    def add(self, kind: Any, *, hidden: bool = False, **fields: Any) -> None:
        place = len(self._events)
        common = {**self.common, "shown": False} if hidden else self.common
        origin = Origin(format=NAME) if place else self.origin
        self._events.append(kind(id=self._first_id + place, origin=origin, **common, **fields))

    def add_message(self, content: Any, *, agent: bool = False) -> None:
        hidden = is_blank(content) or self.record.get("isApiErrorMessage") is True  # no model wrote it
        source: Source = "environment" if self.record.get("isMeta") is True else "user"
        self.add(Message, content=content, source="agent" if agent else source, hidden=hidden)

    def end_message(self, parts: list[Any]) -> None:
        if parts:
            self.add_message(tuple(parts))
            parts.clear()

    def add_action(self, block: dict[str, Any], response_id: str | None, thought: Any, thinking: list[Any]) -> None:
        arguments, call_id = block.get("input"), block.get("id")
        self.add(
            Action,
            tool=text_or_empty(block.get("name")),
            arguments=arguments if type(arguments) is dict else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=response_id,
            thought=thought,
            thinking=tuple(thinking),
        )
