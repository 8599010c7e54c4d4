"""Encode events as Codex records: the fields that an event gives, and the record itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog._formats.codex.lines import FAILED, has_failed, line_of, parts_of, place_of_summary
from foldlog._formats.format import RecordEncoder
from foldlog._formats.members import Members
from foldlog._formats.packing import is_declined
from foldlog._formats.pairs import CallItems
from foldlog._formats.record_events import COMMENTARY
from foldlog._formats.told import parts_in, role_of, session_of, stamp_of, time_of
from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Content,
    DocumentChanges,
    Event,
    InvalidEvent,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
)

NAME = "codex"


class CodexEncoder(RecordEncoder):
    """Events of one history to records.

    Bookkeeping is left out. A condensation or a retraction is written as ``compacted``, with the items of the View
    after it as its replacement history.
    """

    def __init__(self) -> None:
        self._first_id: int | None = None
        self._shown = Members[list[Any]]()
        self._calls = CallItems()

    def head(self, event: Event) -> list[Any]:
        session = {"id": session_of(event), "timestamp": time_of(event), "cwd": "", "originator": "foldlog"}
        return [_record("session_meta", {**session, "cli_version": ""}, event)]

    def records(self, event: Event) -> list[Any] | None:
        self._first_id = event.id if self._first_id is None else self._first_id
        if isinstance(event, CondensationAction | Retraction):
            return self._compacted(event)
        if isinstance(event, Redaction | DocumentChanges):
            return None
        items = self._items(event)
        self._shown.follow(event, items)
        return [_record("response_item", item, event) for item in items]

    def follow(self, events: Sequence[Event], record: Any) -> None:
        self._calls.follow(events)
        self._first_id = events[0].id if self._first_id is None else self._first_id
        line = None if record is None else line_of(record)
        payload = None if line is None else line.payload
        *earlier, last = events
        fields = payload if type(payload) is dict else {}
        history, said = fields.get("replacement_history"), fields.get("message")
        if earlier and type(history) is list:
            summary = place_of_summary(history, said) if type(said) is str else None
            items = [[item] for place, item in enumerate(history) if place != summary]
        else:
            items = [self._items(event) for event in earlier]  # the results of calls that were aborted
        for event, of_event in zip(earlier, items, strict=True):
            self._shown.follow(event, of_event)
        if line is not None and line.type == "response_item":
            self._shown.follow(last, [payload])
        else:  # base instructions are sent with every request
            self._shown.follow(last, [] if line is not None and line.type == "session_meta" else self._items(last))

    def _compacted(self, event: CondensationAction | Retraction) -> list[Any]:
        """Return the line of a condensation or retraction that foldlog made. A declined one changes nothing and has no
        line.
        """
        if is_declined(event):
            return []
        if self._first_id:
            raise InvalidEvent(
                f"event {event.id} changes the View, and Codex's record of that holds the whole View; "
                f"the encoder began with event {self._first_id}: begin with event 0"
            )
        self._shown.follow(event, self._items(event))
        summary = event.summary if isinstance(event, CondensationAction) else None
        items = [item for _, of_event in self._shown.all() for item in of_event]
        payload = {"message": summary or "", "replacement_history": items}
        return [_record("compacted", payload, event)]

    def _items(self, event: Event) -> list[Any]:
        """Return the items of Codex that have the content of ``event``; bookkeeping has none."""
        match event:
            case Message() | SystemMessage() | CondensationSummary():
                role = role_of(event)
                return [_message("developer" if role == "system" else role, event.content)]
            case Action():
                said = [{**_message("assistant", event.thought), "phase": COMMENTARY}] if event.thought else []
                return [*said, self._calls.call(event)]
            case Observation():
                mark = FAILED if event.is_error and not has_failed(event.content) else ""
                if isinstance(event.content, str):
                    return [self._calls.result(event, mark + event.content)]
                return [self._calls.result(event, parts_of((*parts_in(mark), *event.content), "input_text"))]
            case CondensationAction() if event.summary is not None:
                return [_message("user", event.summary)]
        return []


def _record(line: str, payload: dict[str, Any], event: Event) -> dict[str, Any]:
    return {"type": line, **stamp_of(event), "payload": payload}


def _message(role: str, content: Content) -> dict[str, Any]:
    text_type = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": parts_of(content, text_type)}
