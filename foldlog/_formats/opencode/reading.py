"""OpenCode's messages to events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.blocks import said
from foldlog._formats.format import Options
from foldlog._formats.opencode.parts import content_of, is_in_words, parts_of, result_of, thinking_of, usage_of
from foldlog._formats.opencode.writing import NAME
from foldlog._formats.record import dict_or_empty, dicts_in, linked_to, member, refused, text_or_empty, time_at
from foldlog._formats.record_events import FollowingDecoder, RecordEvents
from foldlog.eventstore import Annotation, CondensationAction, Event, Message, Observation, Origin, Retraction

_UNSAID = ("step-start", "reasoning")
"""Types of parts that an answer without anything to send may have."""

_TIME_MAX = 2**53

_Part = dict[str, Any]


def info_of(record: Any) -> _Part | None:
    """Return what a record says about its message or session; None for any other value."""
    info = member("info")(record)
    return info if type(info) is dict else None


def session_in(record: Any) -> str | None:
    """Return the session that a record names."""
    info = info_of(record) or {}
    name = info.get("sessionID", None if "parts" in record else info.get("id")) if info else None
    return name if type(name) is str and name else None


def parent_in(records: Iterable[Any]) -> str | None:
    """Return the session that started a sub-agent's. Cost: one pass over the records."""
    parent = None
    for record in records:
        if type(record) is dict and "parts" not in record and (info := info_of(record)) is not None:
            parent = info.get("parentID")
    return parent if type(parent) is str and parent else None


class OpenCodeDecoder(FollowingDecoder):
    """Records of one session to events. ``parent`` is the session that started it.

    Of what is shown it knows the id of the message.
    """

    format = NAME

    def __init__(self, options: Options, parent: str | None) -> None:
        super().__init__(options)
        self._parent = f"{options.prefix}{parent}" if parent else None
        self._begun: dict[str, int] = {}
        """The version before each message and part, by its id."""
        self._asked: dict[Any, _Part] = {}
        """The part that asks for a compaction, by the id of its message."""

    def check(self, record: Any) -> None:
        if info_of(record) is None:
            raise refused("a message of OpenCode with an object under 'info'", record)

    def events(self, record: Any) -> list[Event]:
        is_first, events = not self.next_id, super().events(record)
        if self._parent and is_first:
            linked_to(self._parent, events[0])
        return events

    def begun(self, record: dict[str, Any]) -> RecordEvents:
        info = record["info"]
        created, name = dict_or_empty(info.get("time")).get("created"), text_or_empty(info.get("id"))
        time = time_at(created / 1000) if isinstance(created, int | float) and created < _TIME_MAX else None
        read = RecordEvents(self, Origin(format=NAME, id=name or None), time)
        read.known = name
        return read

    def read(self, read: RecordEvents, record: dict[str, Any]) -> None:
        info, parts = record["info"], dicts_in(record.get("parts"))
        if "parts" not in record:
            self._read_session(read, info)
            return
        if read.known:
            self._begun[read.known] = self.next_id
        role = info.get("role")
        if role == "assistant":
            read.meta = usage_of(info, parts)
            if not self._condense(read, info, parts) and not _has_failed(info, parts):
                self._read_response(read, parts)
        elif role == "user":
            self._read_question(read, parts)
        read.close(str(role or "message"), None)

    def _read_session(self, read: RecordEvents, info: _Part) -> None:
        revert, title = dict_or_empty(info.get("revert")), info.get("title")
        whole, part = (text_or_empty(revert.get(key)) for key in ("messageID", "partID"))
        begun = self._begun.get(part, self._begun.get(whole))
        if begun is not None:
            read.add(Retraction, version=begun)
        read.meta = {"title": title} if text_or_empty(title).strip() else {}
        read.add(Annotation, name="session")

    def _read_question(self, read: RecordEvents, parts: list[_Part]) -> None:
        for part in parts:
            if part.get("type") == "compaction" and read.known:
                self._asked[read.known] = part
        told = [part for part in parts if not is_in_words(part)]
        if content := content_of(told):
            texts = [part for part in told if part.get("type") == "text"]
            is_told = bool(texts) and all(part.get("synthetic") is True for part in texts)
            read.add(Message, content=content, source="environment" if is_told else "user")

    def _condense(self, read: RecordEvents, info: _Part, parts: list[_Part]) -> bool:
        """Add the condensation that a summary is, if OpenCode goes on from it."""
        asked = self._asked.get(parent) if type(parent := info.get("parentID")) is str else None
        done = info.get("summary") is True and info.get("finish") and not info.get("error")
        texts = [each["text"] for each in parts if each.get("type") == "text" and type(each.get("text")) is str]
        summary = "\n".join(texts)
        if not done or asked is None or not summary:
            return False
        members = self.shown.all()
        places = {known: place for place, (_, known) in reversed(list(enumerate(members)))}
        end = places.get(parent, len(members))
        begin = places.get(text_or_empty(asked.get("tail_start_id")), end)
        read.add(
            CondensationAction,
            forgotten_event_ids=tuple(each for place, (each, _) in enumerate(members) if not begin <= place < end),
            summary=summary,
            summary_offset=0,
            metadata={"reason": "tokens" if asked.get("auto") is True else "request"},
        )
        return True

    def _read_response(self, read: RecordEvents, parts: list[_Part]) -> None:
        """Add the events of a model's steps: of each what it says, its calls, and their results."""
        calls: list[_Part] = []
        name, steps = read.response, 0
        for part in (*parts, {"type": "step-start"}):
            kind = part.get("type")
            if kind == "step-start" or (calls and kind in ("text", "reasoning")):
                _end_step(read, calls)
                steps += bool(calls)
                read.response = f"{name}/{steps}" if steps else name
                calls = []
            if type(part.get("id")) is str:
                self._begun[part["id"]] = read.version
            if kind == "text" and text_or_empty(part.get("text")):
                read.parts += parts_of(part)
            elif kind == "reasoning":
                read.thinking.append(thinking_of(part))
            elif kind == "tool":
                calls.append(part)


def _end_step(read: RecordEvents, calls: list[_Part]) -> None:
    """Add the events of a step; thinking that nothing follows is that of the next one."""
    if calls:
        states: list[_Part] = [dict_or_empty(part.get("state")) for part in calls]
        thought = said(read.parts) or ()  # no part, where nothing was said
        actions = []
        for part, state in zip(calls, states, strict=True):
            actions.append(read.call(part.get("tool"), state.get("input"), part.get("callID"), thought))
            thought = ""
        for call, state in zip(actions, states, strict=True):
            content, is_error = result_of(state)
            named = {"tool": call.tool, "call_id": call.call_id, "cause": call.id}
            read.add(Observation, content=content, is_error=is_error, **named)
    elif read.parts:
        read.add(Message, content=said(read.parts), source="agent", thinking=tuple(read.thinking))
        read.parts, read.thinking = [], []


def _has_failed(info: _Part, parts: list[_Part]) -> bool:
    """Return whether OpenCode leaves an answer out: it failed, or was aborted before it said anything."""
    error = info.get("error")
    has_said = any(part.get("type") not in _UNSAID for part in parts)
    return bool(error) and not (dict_or_empty(error).get("name") == "MessageAbortedError" and has_said)
