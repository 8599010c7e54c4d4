"""Gemini CLI: the lines of a session in ``chats/session-….jsonl``, or the document that it was
before 2026.

    {"sessionId", …}                    the session; of a document all but its messages, with what
                                        changes at the end
    {"id", "type": "user", "content"}   Message; from the environment where Gemini CLI wrote it; an
                                        Observation for each
                                        result in it. A command (``/``, ``?``) is kept and not shown
    {"id", "type": "gemini", …}         a Message, or an Action for each call with its Observation;
                                        with its thinking
    {"id", "type": …}                   info, warning, error: an Annotation
    {"$rewindTo": id}                   takes the messages from this one on back
    {"$set": {…}}                       new values of the session; its title is ``summary``.
                                        ``messages`` replace all;
                                        if they begin with a snapshot of the state, that is a
                                        compaction

An id that comes again replaces the message: a Retraction takes it back with all after it, and these
follow again. So at every version the View is what Gemini CLI would send. What the record repeats is
in it only.

A chat that is resumed begins with the session once more. Gemini CLI then sets the messages to its
context alone, and next to all of them, with new times and in another form: a message that says the
same stays. A context with another text takes the place of the one before, as a system prompt does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import force_setattr

from foldlog._formats.blocks import said, shown_of, thinking_of
from foldlog._formats.event_fields import (
    data_url,
    file_at,
)
from foldlog._formats.files.readers import in_document, on_lines
from foldlog._formats.format import Contained, FileReader, Format, Options, first_named
from foldlog._formats.record import (
    dicts_in,
    joined_text,
    member,
    read_time,
    text_or_empty,
    usage_told,
    within,
)
from foldlog._formats.record_events import FollowingDecoder, RecordEvents, TimeAndId
from foldlog._formats.replacing import WRITTEN_AGAIN
from foldlog._prompt_changes import change_of_prompt
from foldlog.eventstore import CondensationAction, Content, Message, Origin, Retraction, summary_id

NAME = "gemini-cli"

_Part = dict[str, Any]

_TYPES = ("user", "gemini", "info", "error", "warning")
_STABLE = ("sessionId", "projectHash", "startTime", "kind")
"""Fields of a session that never change."""
_CHANGING = frozenset(("messages", "lastUpdated", "summary", "directories", "memoryScratchpad"))
_READ_ELSEWHERE = frozenset(("text", "functionCall", "functionResponse"))


class _Documents(FileReader):
    def holds(self, path: Path, begin: bytes) -> bool:
        begins = re.match(rb'\s*\{\s*"(sessionId|projectHash)"', begin) is not None
        is_one = begins and all(
            b'"%b"' % key.encode() in begin for key in (*_STABLE[:3], "messages")
        )
        return is_one and not on_lines(path)

    def histories(self, path: Path) -> Iterator[Contained]:
        return in_document(path, "messages", session_in, _STABLE, "$set")


def _matches(record: Any) -> bool:
    """Return whether a record is a session, a change of it, or a message of its types with time and
    content.
    """
    if not accepts(record):
        return False
    if "id" not in record:
        return type(changed := record.get("$set")) is not dict or not _CHANGING.isdisjoint(changed)
    return record["type"] in _TYPES and type(record.get("timestamp")) is str and "content" in record


def parts_of(content: Any) -> list[_Part]:
    """Return content as parts: it may be a text, a part, or texts and parts."""
    several = content if type(content) is list else [content]
    return dicts_in([{"text": each} if type(each) is str else each for each in several])


def content_of(content: Any) -> Content:
    return said(shown_parts(parts_of(content)))


def shown_parts(parts: list[_Part]) -> list[_Part]:
    return [shown for part in parts if (shown := _shown(part)) is not None]


def said_parts(parts: list[_Part]) -> list[_Part]:
    """Return what a model said, without what it thought."""
    return shown_parts([part for part in parts if part.get("thought") is not True])


def thoughts_in(parts: list[_Part]) -> list[str]:
    """Return the texts that a model thought."""
    return [text_or_empty(part.get("text")) for part in parts if part.get("thought") is True]


def held_in(parts: list[_Part], key: str) -> list[_Part]:
    """Return the objects that parts have under a key: calls, or responses to calls."""
    return dicts_in([part.get(key) for part in parts])


def _shown(part: _Part) -> _Part | None:
    if type(part.get("text")) is str and part["text"]:
        return {"type": "text", "text": part["text"]}
    held: Any = next(
        (part[key] for key in ("inlineData", "fileData") if type(part.get(key)) is dict), {}
    )
    kind = text_or_empty(held.get("mimeType"))
    if type(held.get("data")) is str:
        url = data_url(kind, held["data"])
    else:
        url = held.get("fileUri")
    if type(url) is str:
        return file_at(url, kind)
    if not _READ_ELSEWHERE.isdisjoint(part) or part.keys() <= {"thoughtSignature"}:
        return None
    return shown_of(part)


def result_of(result: Any, call_id: Any) -> tuple[Content, bool]:
    """Return what a model is told of the result of a call, without those of others, and whether
    that is an error. A part belongs to the response before it.
    """
    told: list[Any] = []
    failed = False
    is_own = True
    parts = parts_of(result)
    has_own = bool(call_id) and any(
        within(each, "functionResponse", "id") == call_id for each in parts
    )
    for part in parts:
        response = part.get("functionResponse")
        if type(response) is dict:
            is_own = response.get("id") == call_id or not has_own
        else:
            is_own = is_own
        if not is_own or type(response) is not dict:
            told += [part] * is_own
            continue
        given = response.get("response")
        fields = given if type(given) is dict else {"output": given}
        failed = failed or "error" in fields
        if len(fields) == 1 and next(iter(fields)) in ("output", "error"):
            one = next(iter(fields.values()))
        else:
            one = fields
        told += [
            one if type(one) is str else json.dumps(one, ensure_ascii=False),
            *dicts_in(response.get("parts")),
        ]
    return content_of(told), failed


_USAGE = {
    "prompt_tokens": ("input", "tool"), "cached_tokens": ("cached",),
    "completion_tokens": ("output", "thoughts"), "reasoning_tokens": ("thoughts",),
}  # fmt: skip


_SNAPSHOT = "<state_snapshot>"
_SESSION = "<session_context>"
_CONTEXTS = (_SESSION, "<hook_context>", _SNAPSHOT)
"""The beginnings of what Gemini CLI says as the user."""
_CONTEXT_REPLACED = {"reason": "the context of the session was updated"}


def session_in(record: Any) -> str | None:
    if type(record) is dict and "projectHash" in record:
        name = record.get("sessionId")
    else:
        name = None
    return name if type(name) is str and name else None


def accepts(record: Any) -> bool:
    if type(record) is not dict:
        return False
    is_message = type(record.get("id")) is str and type(record.get("type")) is str
    is_change = type(record.get("$set")) is dict or type(record.get("$rewindTo")) is str
    return is_message or is_change or session_in(record) is not None


def _is_context(record: _Part) -> bool:
    """Return whether a message is the context that Gemini CLI puts before all others."""
    text = joined_text(content_of(record.get("content")))
    return record.get("type") == "user" and text.lstrip().startswith(_SESSION)


def _calls_in(record: _Part) -> list[_Part]:
    """Return the calls of a message: in its content, else in the field beside it."""
    parts = parts_of(record.get("content"))
    return held_in(parts, "functionCall") or dicts_in(record.get("toolCalls"))


def _results_in(record: _Part) -> dict[Any, Content]:
    """Return the results that a message has, by the ids of their calls."""
    parts = parts_of(record.get("content"))
    results = {
        each.get("id"): [{"functionResponse": each}] for each in held_in(parts, "functionResponse")
    }
    results |= {
        call.get("id"): call["result"]
        for call in dicts_in(record.get("toolCalls"))
        if call.get("result")
    }
    return {call_id: result_of(result, call_id)[0] for call_id, result in results.items()}


def _says_same(former: _Part, latter: _Part) -> bool:
    """Return whether two messages say the same to a model, in whichever form they are written: a
    resumed session has calls in the content, and their results in messages of their own.
    """
    if latter.get("toolCalls") not in (None, former.get("toolCalls")):
        return False
    return _content_and_calls(former) == _content_and_calls(latter)


def _repeats_results(record: _Part, results: dict[Any, Content]) -> bool:
    """Return whether a message has results only, and the same are known."""
    own = _results_in(record)
    has_more = bool(shown_parts(parts_of(record.get("content"))))
    return (
        bool(own)
        and not has_more
        and all(results.get(call_id) == result for call_id, result in own.items())
    )


def _content_and_calls(record: _Part) -> object:
    parts = said_parts(parts_of(record.get("content")))
    calls = [(call.get("id"), call.get("name"), call.get("args")) for call in _calls_in(record)]
    results = _results_in(record) if record.get("type") == "user" else {}
    return record.get("type"), parts, calls, results


class _Stands(NamedTuple):
    """A message that a View shows, or that is bookkeeping: its record, and the version after its
    events.
    """

    record: Any
    end: int
    shown: bool


class GeminiDecoder(FollowingDecoder):
    """Records of one session to events, one record after the other. Memory: the messages that
    stand.
    """

    has_own_ids = True

    repeat = "logs"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._messages: list[_Stands] = []
        self._places: dict[str, int] = {}
        self._time: datetime | None = None
        self._is_resuming = False
        """Whether the session began again, and no message came since."""
        self._waiting: list[_Part] | None = None
        """The messages that a resumed session set, where it will set more of them before it asks a
        model.
        """
        self._context_at = -1
        """The id of the event that brought the context of a resumed session; -1 where the first
        message shows it.
        """

    def begin_record(self, record: _Part, time_and_id: TimeAndId) -> RecordEvents:
        time = read_time(record.get("startTime"))[0] or self._time
        return RecordEvents(self, Origin(format=NAME, id=record.get("id")), time)

    def read(self, read: RecordEvents, record: _Part) -> None:
        rewound = record.get("$rewindTo")
        changed = record.get("$set")
        session = changed if type(changed) is dict else record
        title = session.get("summary")
        if type(rewound) is str or type(record.get("id")) is str:
            self._end_waiting(read)
        if type(rewound) is str:
            self._replace(read, self._places.get(rewound, 0), ())
        elif type(record.get("id")) is str:
            self._add_message(read, record)
        elif type(session.get("messages")) is list:
            self._set_or_wait(read, [each for each in session["messages"] if type(each) is dict])
        elif session_in(record) is not None:
            self._is_resuming = bool(self._messages)
        read.close(str(record.get("type") or next(iter(record))), None)
        self._time = read.timestamp
        if "id" not in record and type(title) is str and title.strip():
            last = read.events[-1]
            # no other code has it before it is returned
            force_setattr(last, "meta", {**last.meta, "title": title})

    def _add_message(self, read: RecordEvents, record: _Part) -> None:
        place = self._places.get(record["id"])
        if place is None:
            self._replace(read, len(self._messages), (record,))
        elif self._messages[place].record != record:
            self._replace(
                read, place, (record, *(each.record for each in self._messages[place + 1 :]))
            )

    def _set_or_wait(self, read: RecordEvents, messages: list[_Part]) -> None:
        """Set the messages. A resumed session sets its context alone first: no model is sent
        this.
        """
        if self._is_resuming and len(messages) == 1 and _is_context(messages[0]):
            self._waiting = messages
        else:
            self._waiting = None
            self._set(read, messages)

    def _end_waiting(self, read: RecordEvents) -> None:
        """Set the messages that wait, before another message follows them."""
        waiting = self._waiting
        self._waiting = None
        self._is_resuming = False
        if waiting is not None:
            self._set(read, waiting)

    def _follow_context(self, read: RecordEvents, messages: Sequence[_Part]) -> None:
        """Put another text of the context in the place of the one before: the rest of the prompt
        stays.
        """
        if not self._messages or not messages or not self._messages[0].shown:
            return
        former = self._messages[0].record
        latter = messages[0]
        is_same = (
            former.get("id") == latter.get("id") and _is_context(former) and _is_context(latter)
        )
        if is_same and not _says_same(former, latter):
            self._messages[0] = self._messages[0]._replace(record=latter)
            read.timestamp = read_time(latter.get("timestamp"))[0]
            self._show_context(read)

    def _show_context(self, read: RecordEvents) -> None:
        text = joined_text(content_of(self._messages[0].record.get("content")))
        before = [event_id for event_id, _ in self.shown.all()]
        self._context_at = read.version
        read.put(
            change_of_prompt(
                before, [text, *before[1:]], "system prompt", metadata=_CONTEXT_REPLACED
            )
        )

    def _count_same(self, messages: Sequence[_Part]) -> tuple[int, int]:
        """Return how many of the messages that stand are the first of these again, and how many of
        these they are.
        """
        place = 0
        known: dict[Any, Content] = {}
        latter = {
            call_id: result
            for record in messages
            for call_id, result in _results_in(record).items()
        }
        for repeated, record in enumerate(messages):
            found = self._find_same(record, place)
            if found is None:
                if not _repeats_results(record, known):
                    return place, repeated
                continue
            former = _results_in(self._messages[found].record)
            if any(latter.get(call_id, result) != result for call_id, result in former.items()):
                return place, repeated
            known |= former
            self._take_id(found, record.get("id"))
            place = found + 1
        return place, len(messages)

    def _find_same(self, record: _Part, place: int) -> int | None:
        """Return the place of the message that says the same: the next one, or after messages that
        no View shows.
        """
        for at in range(place, len(self._messages)):
            stands = self._messages[at]
            if stands.record == record or _says_same(stands.record, record):
                return at
            if stands.shown:
                return None
        return None

    def _take_id(self, place: int, name: Any) -> None:
        """Take notice that a message has another id from now on."""
        former = self._messages[place].record
        if type(name) is str and name not in self._places:
            self._places.pop(str(former.get("id")), None)
            self._places[name] = place
            self._messages[place] = self._messages[place]._replace(record={**former, "id": name})

    def _set(self, read: RecordEvents, messages: Sequence[_Part]) -> None:
        self._follow_context(read, messages)
        same, repeated = self._count_same(messages)
        following = messages[repeated:]
        if following:
            known = any(each.record.get("id") == following[0].get("id") for each in self._messages)
        else:
            known = True
        if following:
            snapshot = joined_text(content_of(following[0].get("content")))
        else:
            snapshot = ""
        if known or following[0].get("type") != "user" or _SNAPSHOT not in snapshot:
            self._replace(read, same, following)
            return
        names = {str(each.get("id")) for each in following}
        lost = (
            n
            for n, each in enumerate(self._messages, 1)
            if each.shown and str(each.record.get("id")) not in names
        )
        self._take_back(read, max(same, *lost, 0), following)
        version = self._messages[same - 1].end if same else 0
        members = [event_id for event_id, _ in self.shown.all()]
        if same and self._context_at >= 0:
            context = summary_id(self._context_at)
        else:
            context = None
        kept = [each for each in members if 0 <= each < version or each == context]
        gone = tuple(each for each in members if each not in set(kept))
        self.calls.forget(gone)
        read.timestamp = read_time(following[0].get("timestamp"))[0]
        told: _Part = {
            "summary": snapshot,
            "summary_offset": len(kept),
            "metadata": {"reason": "tokens"},
        }
        read.add(CondensationAction, forgotten_event_ids=gone, **told)
        self._drop(same)
        self._places[str(following[0].get("id"))] = same
        self._messages.append(_Stands(following[0], read.version, shown=True))
        self._replace(read, same + 1, following[1:])

    def _replace(self, read: RecordEvents, place: int, records: Sequence[_Part]) -> None:
        """Take messages back, and add others, or the same again."""
        self._take_back(read, place, records)
        for record in records:
            before = len(read.events)
            read.timestamp = read_time(record.get("timestamp"))[0]
            self._read_message(read, record)
            added = read.events[before:]
            self._places.setdefault(str(record.get("id")), len(self._messages))
            self._messages.append(_Stands(record, read.version, any(each.shown for each in added)))

    def _take_back(self, read: RecordEvents, place: int, records: Sequence[_Part]) -> None:
        """Take the messages from ``place`` on back, if they are shown. ``records`` follow."""
        version = self._messages[place - 1].end if place else 0
        if gone := {str(each.record.get("id")) for each in self._messages[place:] if each.shown}:
            is_again = gone <= {str(record.get("id")) for record in records}
            read.timestamp = None
            self.calls.forget(range(version, read.version))
            read.add(Retraction, version=version, reason=WRITTEN_AGAIN if is_again else "")
            if version <= self._context_at:
                self._context_at = -1
                if place:
                    self._show_context(read)
        self._drop(place)

    def _drop(self, place: int) -> None:
        for each in self._messages[place:]:
            self._places.pop(str(each.record.get("id")), None)
        del self._messages[place:]

    def _read_message(self, read: RecordEvents, record: _Part) -> None:
        parts = parts_of(record.get("content"))
        if record.get("type") == "user":
            for response in held_in(parts, "functionResponse"):
                self._answer(
                    read, response.get("id"), [{"functionResponse": response}], response.get("name")
                )
            content = content_of(record.get("content"))
            text = joined_text(content).strip()
            if content and (text or not isinstance(content, str)):
                source = "environment" if text.startswith(_CONTEXTS) else "user"
                read.add(
                    Message, content=content, source=source, shown=not text.startswith(("/", "?"))
                )
        elif record.get("type") == "gemini":
            told = {"model": record.get("model"), "reply": record.get("id")}
            read.meta = usage_told(record.get("tokens"), _USAGE, **told)
            self._read_response(read, record, parts)
            read.meta = {}

    def _read_response(self, read: RecordEvents, record: _Part, parts: list[_Part]) -> None:
        """Read what the model said: its content if that has calls or thoughts, else the fields
        beside it.
        """
        results = {
            each.get("id"): each
            for each in dicts_in(record.get("toolCalls"))
            if type(each.get("id")) is str
        }
        calls = held_in(parts, "functionCall")
        thoughts = thoughts_in(parts)
        if not calls and not thoughts:
            for each in dicts_in(record.get("thoughts")):
                subject = text_or_empty(each.get("subject"))
                thought = text_or_empty(each.get("description"))
                thoughts.append(f"**{subject}** {thought}" if subject else thought)
            calls = dicts_in(record.get("toolCalls"))
        read.parts = said_parts(parts)
        read.thinking = [*map(thinking_of, filter(None, thoughts))]
        read.response = str(record.get("id"))
        for call in calls:
            read.call(call.get("name"), call.get("args"), call.get("id"))
        read.say("agent", as_text=True)
        read.thinking = []
        for call in calls:
            if type(call.get("id")) is str:
                result = results.get(call.get("id"), {})
            else:
                result = {}
            if result.get("result"):
                failed = result.get("status") in ("error", "cancelled")
                self._answer(read, call["id"], result["result"], is_error=failed)

    def _answer(
        self,
        read: RecordEvents,
        call_id: Any,
        result: Any,
        tool: Any = "",
        *,
        is_error: bool = False,
    ) -> None:
        """Add a result. A second one of the same call is not shown."""
        content, has_failed = result_of(result, call_id)
        shown = {} if self.calls.is_open(call_id) else {"shown": False}
        read.answer(call_id, content, is_error=is_error or has_failed, tool=tool, **shown)


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    refuses=lambda record: within(record, "type") == "qwen",
    expected="a record of Gemini CLI, with an id and a type, a sessionId, $set or $rewindTo",
    decoder=GeminiDecoder,
    conversation=first_named(session_in),
    files=_Documents(),
    time=lambda record: read_time(within(record, "timestamp") or within(record, "startTime")),
    kept_in=("~/.gemini/tmp",),
    source_id=member("id"),
)
