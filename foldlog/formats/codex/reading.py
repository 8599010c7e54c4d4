"""Make events of Codex records."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from foldlog.eventstore import (
    Annotation,
    CondensationAction,
    Event,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog.formats.blocks import content_of_parts, texts_of
from foldlog.formats.codex.compaction import NO_SUMMARY, is_marked_summary, newest_messages
from foldlog.formats.codex.lines import (
    ABORTED_RESULT,
    CONTEXT,
    INITIAL_CONTEXT,
    Line,
    base_end,
    has_failed,
    line_of,
    ordinal_of,
    parent_of,
    place_of_summary,
    texts_in,
    unmark,
)
from foldlog.formats.event_fields import text_part
from foldlog.formats.json_text import key_of
from foldlog.formats.messages import READER
from foldlog.formats.open_calls import OpenCalls
from foldlog.formats.record import Fields, NotAnEvent, omit, text_or_empty, within
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts

_ITEMS = ("response_item", "event_msg")
_REPEATS = {
    "user_message": ("message", "images"),
    "agent_message": ("message",),
    "agent_reasoning": ("text",),
}
"""Fields that repeat other records, and are therefore left out of events."""
_INSTRUCTIONS = {
    "session_meta": ("base_instructions", "instructions"),
    "turn_context": ("base_instructions", "developer_instructions", "user_instructions"),
}
"""Maps the type of a line to its fields with instructions."""

_OTHER, _TURN, _INSTRUCTED, _BASE = range(4)
"""The roles of shown events. A message of the user begins a turn (``_TURN``). Other instructions,
and what Codex tells of the environment at the beginning, are ``_INSTRUCTED``. A condensation never
forgets base instructions (``_BASE``), because base instructions are part of every request.
"""
_IS_BASE = {"instructions": "base"}
_AGENTS = frozenset(("author", "recipient"))
_SAYS = "agent_message"
"""The type of a message from one agent to another. Its fields in ``_AGENTS`` name the two agents. A
message from one agent to another begins a turn, like a message of the user.
"""
_SHOWN = ("response_item", "inter_agent_communication")
"""The types of lines that a View may show as they are."""
_SECRET = "encrypted_content"
"""The field of a message from one agent to another that only OpenAI's server can read."""
_SAID_MAX = 20
"""New instructions are not shown again if one of so many newest texts has them."""

_NO_SESSION = (
    "begins without the session_meta line that names the session, so an earlier import of this"
    " session is not found"
)
_NOT_HERE = (
    "continues the rollout {}, whose last record is missing; import the file of that name too. If"
    " that file belongs to another session, import this file again under another name"
    " (--conversation)"
)


class _Known(NamedTuple):
    """What the decoder remembers about a shown event. ``role`` is ``_OTHER``, ``_TURN``,
    ``_INSTRUCTED`` or ``_BASE``. ``texts`` is empty, except for system prompts, for summaries, and
    for messages that are not from the agent. ``is_text`` is False if there are other parts too.
    """

    role: int
    texts: list[str]
    is_text: bool = True

    @property
    def text(self) -> str:
        """All texts of the event."""
        return "".join(self.texts)


class CodexDecoder(FollowingDecoder):
    """Reads the lines of a rollout. The tag of a shown event is a ``_Known``."""

    continues = True
    minds_others = True

    def set_up(self) -> None:
        self._numbered: list[tuple[int, int]] = []
        """The number of each numbered record, and the version after it."""
        self._returns_to = 0
        """The lowest version to which a rollback may return. A return to a lower version would take
        back instructions, or events that did not come from the rollout.
        """
        self._context = frozenset[int]()
        """The keys of the instructions of the last ``turn_context``."""
        self._has_forgotten = False
        """Whether events have left the View since then."""

    def facts(self) -> Facts:
        return {"context": sorted(self._context), "has_forgotten": self._has_forgotten}

    def restore_after(self, facts: Facts) -> None:
        self._context = frozenset(facts["context"])
        self._has_forgotten = facts["has_forgotten"]

    def skip_to(self, next_id: int) -> None:
        if next_id > self.next_id:
            self._returns_to = next_id
        super().skip_to(next_id)

    def adopt(self, record: Any, event_ids: Sequence[int]) -> None:
        super().adopt(record, event_ids)
        if (number := ordinal_of(record)) is not None:
            self._numbered[-1] = number, self.adopted

    def end_adoption(self, version: int) -> None:
        super().end_adoption(version)
        self._returns_to = version

    def tag(self, event: Event, collected: RecordEvents) -> _Known:
        if isinstance(event, CondensationAction | Retraction):
            self._has_forgotten = True
        if isinstance(event, SystemMessage):
            # a redacted event has no "instructions" in its meta
            is_base = collected.tag == "session_meta"
            return _Known(_BASE if is_base else _INSTRUCTED, texts_of(event.content))
        if isinstance(event, Message) and event.source != "agent":
            texts = texts_of(event.content)
            is_text = isinstance(event.content, str) or len(event.content) == len(texts)
            return _Known(_role_of_message(event, texts), texts, is_text)
        if isinstance(event, CondensationAction):
            return _Known(_OTHER, [event.summary or ""])
        return _Known(_OTHER, [])

    def repeated_fields(self, record: Any) -> Collection[str]:
        line = line_of(record)
        if line is not None and line.type == "response_item":
            output = within(line.payload, "output")
            # The event has the output without the header that foldlog wrote.
            return () if output is None or unmark(output) == output else ("payload.output",)
        if line is None or line.type not in ("event_msg", "compacted"):
            return ()
        default = ("message",) if line.type == "compacted" else ()
        names = _REPEATS.get(text_or_empty(line.payload, "type"), default)
        return [f"payload.{name}" for name in names]

    def read(self, collected: RecordEvents, record: Fields) -> None:
        """Add the event of a record. For a compaction, first add the events of its history. For an
        aborted turn, first add a result for each open call.
        """
        kind, payload = line_of(record) or Line("", None)
        collected.tag = kind
        collected.response = None
        if collected.version == 0 and kind != "session_meta":
            self.report(_NO_SESSION)
        if kind == "compacted" and type(payload) is dict:
            history = payload.get("replacement_history")
            message = text_or_empty(payload, "message")
            if type(history) is list:
                self._replace(collected, history, message)
            else:
                self._rebuild(collected, message)
            collected.close("compacted", None)
        else:
            if kind == "session_meta":
                self._begin_session(collected, payload)
            elif kind == "event_msg" and within(payload, "type") == "turn_aborted":
                self._abort_turn(collected)
            self._read_payload(collected, kind, payload)
        if (number := ordinal_of(record)) is not None:
            self._numbered.append((number, collected.version))

    def _begin_session(self, collected: RecordEvents, session: Any) -> None:
        """Note the parent of a session, and go back to where it continues an earlier rollout."""
        self.past.break_off()
        if collected.version == 0 and (parent := parent_of(session)):
            collected.meta["parent"] = f"{self.options.prefix}{parent}"
        self._returns_to = collected.version + 1
        end = base_end(session)
        if end is not None:
            self._go_on_from(collected, end, session)

    def _abort_turn(self, collected: RecordEvents) -> None:
        """Add a result for each open call. The results have no time."""
        self.past.break_off()
        own = collected.timestamp
        collected.timestamp = None
        for call in self.calls.all():
            collected.answer(call, ABORTED_RESULT, is_error=True)
        collected.timestamp = own

    def _go_on_from(self, collected: RecordEvents, end: int, session: Any) -> None:
        """Take back the records from the number ``end`` on, which a session does not continue."""
        records = reversed(self._numbered)
        newest = next(records, (-1, 0))
        last, version = next(
            (record for record in chain((newest,), records) if record[0] < end), (-1, 0)
        )
        if last != end - 1:
            self.report(_NOT_HERE.format(within(session, "history_base", "thread_id")))
        if newest[0] >= end:
            self.calls.forget(range(version, collected.version))
            self.return_to(collected, version)

    def _read_payload(self, collected: RecordEvents, kind: str, payload: Any) -> None:
        """Add the event of the payload of a line. ``kind`` is the type of the line."""
        if type(payload) is not dict:
            collected.add(Annotation, name=kind, data=payload)
            return
        named = payload.get("type") if kind in _ITEMS else kind
        name = named if type(named) is str else kind
        if kind in _SHOWN and _read_item(collected, payload):
            return
        if kind in _INSTRUCTIONS and (texts := self._new_instructions(kind, payload)):
            meta: Fields = {}
            if model := text_or_empty(payload, "model"):
                meta["model"] = model
            if kind == "session_meta":
                meta |= _IS_BASE
            collected.meta = meta | collected.meta
            content = content_of_parts([*map(text_part, texts)])
            collected.add(SystemMessage, content=content)
        elif (
            kind == "event_msg"
            and name == "thread_rolled_back"
            and (turns := _count_of_turns(payload))
        ):
            self._roll_back(collected, turns)
        else:
            own_keys = ("id", "type", *_REPEATS.get(name, ())) if kind in _ITEMS else ("id",)
            collected.add(Annotation, name=name, data=omit(payload, *own_keys))

    def _roll_back(self, collected: RecordEvents, turns: int) -> None:
        """Retract the last turns. A turn begins with a message of the user. If no retraction is
        possible, add a condensation that forgets these turns.

        A retraction cannot go back past the newest compaction or the newest ``session_meta`` line.
        A retraction also cannot take back events that did not come from the rollout.
        """
        members = self.shown.all()
        begins = [place for place, (_, member) in enumerate(members) if member.role == _TURN]
        begins = begins[-turns:]
        last = members[begins[0] :] if begins else []
        forgotten = tuple(event_id for event_id, member in last if member.role < _BASE)
        forgotten_ids = frozenset(forgotten)
        self.calls.forget(forgotten_ids)
        is_return = len(begins) == turns and forgotten[0] >= max(
            self.shown.condensed_at, self._returns_to
        )
        if is_return:
            collected.change(
                [event_id for event_id, _ in members if event_id not in forgotten_ids], "return"
            )
        else:
            collected.add(CondensationAction, forgotten_event_ids=forgotten)

    def _new_instructions(self, kind: str, payload: Fields) -> list[str]:
        """Return the instructions of a line that the View does not show yet. An instruction is a
        text, or an object with a text.
        """
        instructions = [payload.get(key) for key in _INSTRUCTIONS[kind]]
        texts = [
            text_or_empty(value.get("text") if type(value) is dict else value)
            for value in instructions
        ]
        texts = [text for text in texts if text]
        unsaid = [text for text in texts if not self._is_shown(text)]
        if kind == "session_meta":
            return unsaid[:1]
        self._context = frozenset(map(key_of, texts))
        self._has_forgotten = False
        return unsaid

    def _is_shown(self, text: str) -> bool:
        """Return whether the View has an instruction. Codex repeats the instructions in each
        ``turn_context``, so unchanged ones are looked for only after events left the View.
        """
        if key_of(text) in self._context:
            return not self._has_forgotten or self._has_text(text, None)
        return self._has_text(text, _SAID_MAX)

    def _has_text(self, text: str, texts_max: int | None) -> bool:
        """Return whether the View has a text, among its newest ``texts_max`` texts or among the
        base instructions. None stands for all texts.
        """
        room = texts_max
        for _, member in self.shown.newest_first():
            is_near = member.role == _BASE or room is None or room > 0
            if is_near and any(text in member_text for member_text in member.texts):
                return True
            if room is not None and member.role != _BASE:
                room -= len(member.texts)
        return False

    def _replace(self, collected: RecordEvents, history: list[Any], message: str) -> None:
        """First add the events of a compaction's history, without the summary. Then add the
        condensation.
        """
        members = self.shown.all()
        after: list[int | str] = [event_id for event_id, member in members if member.role == _BASE]
        forgotten = {event_id for event_id, _ in members}.difference(after)
        self.calls = OpenCalls()
        offset = len(after)
        place = place_of_summary(history, message)
        own = collected.timestamp
        collected.timestamp = None
        for number, item in enumerate(history):
            if number == place:
                continue
            try:
                self._read_payload(collected, "response_item", item)
            except NotAnEvent as error:
                self.report(f"is a compaction, and its item {number} is not shown: {error}")
                collected.add(Annotation, name="message", data=item)
            if place is not None and number < place and collected.events[-1].shown:
                offset += 1
        collected.timestamp = own
        after = [event_id for event_id in self.shown.ids() if event_id not in forgotten]
        if place is not None:
            after.insert(offset, "".join(texts_in(history[place]["content"])))
        collected.change(after, "compaction")

    def _rebuild(self, collected: RecordEvents, message: str) -> None:
        """Add the condensation of a compaction without a history. Codex then sends the initial
        context, the newest messages of the user, and the summary ``message``.

        A message that Codex shortens becomes a new event, and so do all later messages, because
        a View shows events in the order of their ids.
        """
        members = self.shown.all()
        of_user = [
            (event_id, member) for event_id, member in members if _is_of_user(event_id, member)
        ]
        texts = newest_messages([member.text for _, member in of_user])
        stays = {event_id for event_id, member in members if member.role >= _INSTRUCTED}
        new_from = 0
        for (event_id, member), text in zip(
            of_user[len(of_user) - len(texts) :], texts, strict=True
        ):
            if not member.is_text or text != member.text:
                break
            stays.add(event_id)
            new_from += 1
        forgotten = {event_id for event_id, _ in members} - stays
        self.calls.forget(forgotten)
        own = collected.timestamp
        collected.timestamp = None
        for text in filter(None, texts[new_from:]):
            collected.add(Message, source="user", content=text)
        collected.timestamp = own
        after: list[int | str] = [
            event_id for event_id in self.shown.ids() if event_id not in forgotten
        ]
        collected.change([*after, message or NO_SUMMARY], "compaction")


def _role_of_message(message: Message, texts: list[str]) -> int:
    """Return the role of a message that is not from the agent: see ``_OTHER``."""
    if message.source == "user":
        return _TURN
    is_initial = bool(texts) and all(map(INITIAL_CONTEXT.match, texts))
    return _INSTRUCTED if is_initial else _OTHER


def _is_of_user(event_id: int, member: _Known) -> bool:
    """Return whether Codex takes a member of the prompt for a message of the user."""
    is_summary = event_id < 0
    return member.role == _TURN or (is_summary and not is_marked_summary(member.text))


def _read_item(collected: RecordEvents, payload: Fields) -> bool:
    """Add the event of an item that is a message, a call or a result. Return False for others."""
    if payload.keys() >= _AGENTS and payload.get("type", _SAYS) == _SAYS:
        content = payload.get("content") or [{"type": _SECRET, _SECRET: payload.get(_SECRET)}]
        collected.take(
            Message(source="user", content=READER.content(content, "what an agent says"))
        )
        return True
    output = payload.get("output")
    extras = {}
    if type(output) is dict and type(output.get("content")) is str:
        extras = omit(output, "content")
        payload = {**payload, "output": output["content"]}
    elif output is not None:
        payload = {**payload, "output": unmark(output)}
    event = READER.item(payload)
    texts = texts_in(payload.get("content"))
    is_context = bool(texts) and all(map(CONTEXT.match, texts))
    if isinstance(event, Message) and event.source != "agent" and is_context:
        event = replace(event, source="environment")
    if isinstance(event, Observation):
        event = replace(event, is_error=has_failed(output), extras=extras)
    if event is not None:
        collected.take(event, payload.get("phase"))
    return event is not None


def _count_of_turns(payload: Fields) -> int:
    """Return the number of turns that a rollback takes back."""
    turns = payload.get("num_turns")
    return turns if type(turns) is int and turns > 0 else 0
