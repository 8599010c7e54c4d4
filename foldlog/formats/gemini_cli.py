"""Sessions of Gemini CLI: lines in ``chats/session-….jsonl``. Before 2026 a session was one
document.

    {"sessionId", …}                    the session. For a document, foldlog makes this record from
                                        the fields that never change, and at the end a record
                                        {"$set"} from all other fields, except the messages
    {"id", "type": "user", "content"}   Message; from the environment if Gemini CLI wrote the text;
                                        an Observation for each result in the content. A View does
                                        not show a command (``/``, ``?``)
    {"id", "type": "gemini", …}         a Message, or an Action for each call with its Observation;
                                        with the thinking of the model
    {"id", "type": …}                   info, warning, error: an Annotation
    {"$rewindTo": id}                   takes back this message and all later messages
    {"$set": {…}}                       new values of the session; its title is ``summary``.
                                        ``messages`` replaces all messages. If the new messages
                                        begin with a snapshot of the state, the record is a
                                        compaction

If an id comes again, the new message replaces the old message. A Retraction takes back the old
message and all messages after it. Then the new message and copies of the later messages are added.
The View at every version is the prompt that Gemini CLI would send. If the new message equals the
old message, the record makes no event.

A resumed chat begins with a second record of the session. Gemini CLI then sets the messages twice:
first only its context, and then all messages. The messages have new times and another form than
before. An earlier message stays if a new message has the same content. A context with a new text
replaces the earlier context, like a system prompt.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

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
    Retraction,
    summary_id,
)
from foldlog.eventstore.usage import WRITTEN_AGAIN
from foldlog.formats.blocks import content_of_parts, shown_of, thinking_of
from foldlog.formats.event_fields import data_url, file_at, text_part
from foldlog.formats.files.readers import in_object, object_in, on_lines
from foldlog.formats.format import Contained, FileReader, Format, first_named
from foldlog.formats.open_calls import NO_RESULT, NewestCalls
from foldlog.formats.prompt_changes import change_of_prompt
from foldlog.formats.record import (
    Fields,
    TimeAndId,
    dicts_in,
    joined_text,
    member,
    read_time,
    reports_error,
    text_or_empty,
    usage_meta,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts, microseconds, time_of

NAME = "gemini-cli"


_TYPES = ("user", "gemini", "info", "error", "warning")
_STABLE = ("sessionId", "projectHash", "startTime", "kind")
"""The fields of a session that never change."""
_DOCUMENT_KEYS = ("sessionId", "projectHash", "startTime", "messages")
"""The fields that each session has which is one document."""
_CHANGING = frozenset(("messages", "lastUpdated", "summary", "directories", "memoryScratchpad"))
"""The fields of a session that a record ``$set`` changes."""
_READ_ELSEWHERE = frozenset(("text", "functionCall", "functionResponse"))
"""The fields of a part that ``_shown`` does not show, because other functions read them."""


class _Documents(FileReader):
    """Reads sessions of before 2026, which are one JSON document."""

    def holds(self, path: Path, begin: bytes) -> bool:
        has_first_key = re.match(rb'\s*\{\s*"(sessionId|projectHash)"', begin) is not None
        has_keys = all(b'"%b"' % key.encode() in begin for key in _DOCUMENT_KEYS)
        return has_first_key and has_keys and not on_lines(path)

    def histories(self, path: Path) -> Iterator[Contained]:
        document = object_in(path)
        yield in_object(path, document, "messages", session_in(document.value), _STABLE, "$set")


def _begun_by(path: Path) -> dict[str, str]:
    """Return the session that began the session in a file. The sessions of sub-agents are in a
    folder with the name of this session.
    """
    folder = path.absolute().parent
    return {"parent": folder.name} if folder.parent.name == "chats" else {}


def _matches(record: Any) -> bool:
    """Return whether a record is certainly one of Gemini CLI."""
    if not accepts(record):
        return False
    if "id" not in record:
        changed = record.get("$set")
        return type(changed) is not dict or not _CHANGING.isdisjoint(changed)
    return (
        record.get("type") in _TYPES
        and type(record.get("timestamp")) is str
        and "content" in record
    )


def parts_of(content: Any) -> list[Fields]:
    """Return content as parts. The content may be a text, a part, or a list of texts and parts."""
    several = content if type(content) is list else [content]
    return dicts_in([{"text": part} if type(part) is str else part for part in several])


def content_of(content: Any) -> Content:
    """Return what a View shows of content."""
    return content_of_parts(shown_parts(parts_of(content)))


def shown_parts(parts: list[Fields]) -> list[Fields]:
    """Return the texts and files in parts, as content parts."""
    return [shown for part in parts if (shown := _shown(part)) is not None]


def visible_parts(parts: list[Fields]) -> list[Fields]:
    """Do as ``shown_parts``, without the model's thoughts."""
    return shown_parts([part for part in parts if part.get("thought") is not True])


def thoughts_in(parts: list[Fields]) -> list[str]:
    """Return the texts of the model's thoughts in parts."""
    return [text_or_empty(part, "text") for part in parts if part.get("thought") is True]


def held_in(parts: list[Fields], key: str) -> list[Fields]:
    """Return the objects that parts have under ``key``, such as ``functionCall``."""
    return dicts_in([part.get(key) for part in parts])


def _shown(part: Fields) -> Fields | None:
    """Return the text or the file in a part, or None if it has neither. A part of an unknown kind
    becomes a text.
    """
    if type(part.get("text")) is str and part["text"]:
        return text_part(part["text"])
    file: Any = next(
        (part[key] for key in ("inlineData", "fileData") if type(part.get(key)) is dict), {}
    )
    kind = text_or_empty(file, "mimeType")
    if type(file.get("data")) is str:
        url = data_url(kind, file["data"])
    else:
        url = file.get("fileUri")
    if type(url) is str:
        return file_at(url, kind)
    if not _READ_ELSEWHERE.isdisjoint(part) or part.keys() <= {"thoughtSignature"}:
        return None
    return shown_of(part)


def result_of(result: Any, call_id: Any) -> tuple[Content, bool]:
    """Return the content of the result of a call, and whether the result is an error. ``result``
    may also contain results of other calls. A part that is not a response belongs to the last
    response before it.
    """
    parts_read: list[Any] = []
    failed = False
    is_own = True
    parts = parts_of(result)
    has_own = bool(call_id) and any(
        within(part, "functionResponse", "id") == call_id for part in parts
    )
    for part in parts:
        response = part.get("functionResponse")
        if type(response) is dict:
            is_own = response.get("id") == call_id or not has_own
        if not is_own:
            continue
        if type(response) is not dict:
            parts_read.append(part)
            continue
        response_value = response.get("response")
        fields = response_value if type(response_value) is dict else {"output": response_value}
        failed = failed or reports_error(fields)
        if len(fields) == 1 and next(iter(fields)) in ("output", "error"):
            output = next(iter(fields.values()))
        else:
            output = fields
        parts_read += [
            output if type(output) is str else json.dumps(output, ensure_ascii=False),
            *dicts_in(response, "parts"),
        ]
    return content_of(parts_read), failed


_USAGE = {
    "prompt_tokens": ("input", "tool"), "cached_tokens": ("cached",),
    "completion_tokens": ("output", "thoughts"), "reasoning_tokens": ("thoughts",),
}  # fmt: skip


_SNAPSHOT = "<state_snapshot>"
"""What the summary of a compaction contains."""
_SESSION = "<session_context>"
"""The beginning of the context that Gemini CLI sends before all other messages."""
_CONTEXTS = (_SESSION, "<hook_context>", _SNAPSHOT)
"""The beginnings of messages that Gemini CLI itself writes as the user."""
_CONTEXT_REPLACED = {"reason": "the context of the session was updated"}
"""The metadata of a condensation that replaces the context."""


def session_in(record: Any) -> str | None:
    """Return the id of the session that a record describes, or None for any other record."""
    name = None
    if type(record) is dict and "projectHash" in record:
        name = record.get("sessionId")
    return name if type(name) is str and name else None


def accepts(record: Any) -> bool:
    """Return whether a record has the form of a message, a change or a session."""
    if type(record) is not dict:
        return False
    is_message = type(record.get("id")) is str and type(record.get("type")) is str
    is_change = type(record.get("$set")) is dict or type(record.get("$rewindTo")) is str
    return is_message or is_change or session_in(record) is not None


def read_reply(
    collected: RecordEvents, parts: list[Fields], thoughts: list[str], calls: list[Fields]
) -> list[Action]:
    """Add the events of a reply: its calls, or its text if it has no calls. Return the calls."""
    collected.parts = visible_parts(parts)
    collected.thinking = [*map(thinking_of, filter(None, thoughts))]
    actions = [collected.call(call.get("name"), call.get("args"), call.get("id")) for call in calls]
    collected.say("agent")
    return actions


def _is_context(record: Fields) -> bool:
    """Return whether a message is the context that Gemini CLI sends before all other messages."""
    text = joined_text(content_of(record.get("content")))
    return record.get("type") == "user" and text.lstrip().startswith(_SESSION)


def _calls_in(record: Fields) -> list[Fields]:
    """Return the calls in the content of a message. If the content has no calls, return the calls
    in the field ``toolCalls``.
    """
    parts = parts_of(record.get("content"))
    return held_in(parts, "functionCall") or dicts_in(record, "toolCalls")


def _results_in(record: Fields) -> dict[Any, Content]:
    """Return the results in a message, by the ids of their calls."""
    parts = parts_of(record.get("content"))
    results = [
        (response.get("id"), [{"functionResponse": response}])
        for response in held_in(parts, "functionResponse")
    ]
    results += [
        (call.get("id"), call["result"])
        for call in dicts_in(record, "toolCalls")
        if call.get("result")
    ]
    return {
        call_id: result_of(result, call_id)[0]
        for call_id, result in results
        if isinstance(call_id, Hashable)
    }


def _is_same_message(former: Fields, latter: Fields) -> bool:
    """Return whether a model gets the same text from two messages, although their forms may differ.
    A resumed session has calls in the content, and the results of calls in separate messages.
    """
    if latter.get("toolCalls") not in (None, former.get("toolCalls")):
        return False
    return _content_and_calls(former) == _content_and_calls(latter)


def _repeats_results(
    record: Fields, results: dict[Any, Content], redacted: Collection[Any] = ()
) -> bool:
    """Return whether a message has only results, which are all in ``results``. The results of a
    user's message may also belong to the calls in ``redacted``.
    """
    own_results = _results_in(record)
    if record.get("type") != "user":
        redacted = ()
    has_more = bool(shown_parts(parts_of(record.get("content"))))
    return (
        bool(own_results)
        and not has_more
        and all(
            call_id in redacted or results.get(call_id) == result
            for call_id, result in own_results.items()
        )
    )


def _content_and_calls(record: Fields) -> object:
    """Return a value that is equal for messages from which a model gets the same text."""
    parts = visible_parts(parts_of(record.get("content")))
    calls = [(call.get("id"), call.get("name"), call.get("args")) for call in _calls_in(record)]
    results = _results_in(record) if record.get("type") == "user" else {}
    return record.get("type"), parts, calls, results


class _CurrentMessage(NamedTuple):
    """A message that the session did not take back. ``end`` is the version after the events of the
    message. ``shown`` is true if a View shows the message. ``calls`` are the newest calls after the
    message.
    """

    record: Any
    end: int
    shown: bool
    calls: NewestCalls


class GeminiDecoder(FollowingDecoder):
    """Reads the records of a session. All messages that the session did not take back stay in
    memory.
    """

    has_own_ids = True
    continues = True
    ids_return = True

    repeat = "logs"

    def repeated_fields(self, record: Any) -> Collection[str]:
        fields = ["$set", "toolCalls.resultDisplay"]
        if record.get("type") in ("info", "warning", "error") or self._is_message_again:
            fields.append("content")
        if any("status" in call and "result" not in call for call in _calls_in(record)):
            fields.append("toolCalls.args")  # the message comes again with the results
        return fields

    def set_up(self) -> None:
        self._messages: list[_CurrentMessage] = []
        self._index_of_id: dict[str, int] = {}
        self._time: datetime | None = None
        self._is_message_again = False
        """Whether the newest message has come before, or its results have."""
        self._is_resuming = False
        """True from the record that resumes a session until the next message."""
        self._waiting: list[Fields] | None = None
        """The context that a resumed session sets first. It is stored until the session sets all
        its messages.
        """
        self._newest_calls = NewestCalls()
        self._context_at = -1
        """The id of the event that replaced the context in a resumed session, or -1 as long as the
        original context is shown.
        """
        self._redacted = set[Any]()
        """The ids of redacted messages, and of the calls whose results were redacted."""

    def facts(self) -> Facts | None:
        time = self._time
        is_utc = time is None or time.utcoffset() == timedelta(0)
        if self._is_resuming or self._waiting is not None or not is_utc:
            return None
        return {
            "time": None if time is None else microseconds(time),
            "context_at": self._context_at,
            "has_open_calls": self._newest_calls.is_open,
        }

    def restore_after(self, facts: Facts) -> None:
        self._time = None if facts["time"] is None else time_of(facts["time"])
        self._context_at = facts["context_at"]
        self._is_resuming = False
        if facts.get("has_open_calls") and not self._newest_calls.is_open:
            self._newest_calls.begin_before_window()

    def begin_record(self, record: Fields, time_and_id: TimeAndId) -> RecordEvents:
        time = read_time(record.get("startTime"))[0] or self._time
        return RecordEvents(self, Origin(format=NAME, id=record.get("id")), time)

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        self._newest_calls.follow(event)
        if isinstance(event, CondensationAction):
            self.calls.forget(frozenset(event.forgotten_event_ids or ()))
            self._newest_calls = NewestCalls()
        elif isinstance(event, Retraction):
            self.calls.forget(range(event.version, event.id))
        elif isinstance(event, Observation):
            self._redacted.add(event.call_id)

    def read_redacted(self, collected: RecordEvents, record: Fields) -> None:
        """If the record set messages, they are not known. They become one message, to which a later
        record can return.
        """
        super().read_redacted(collected, record)
        stored = collected.stored
        self._end_resuming()
        returns = [event.version for event in stored if isinstance(event, Retraction)]
        sets_messages = any(event.shown or type(event) is CondensationAction for event in stored)
        if sets_messages:
            self._drop(0)
            self._messages.append(
                _CurrentMessage({}, collected.version, shown=True, calls=self._newest_calls.copy())
            )
        elif returns:
            ends = [message.end for message in self._messages]
            index = bisect_right(ends, returns[-1])
            self._newest_calls = self._calls_before(index)
            self._drop(index)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        rewound_to = record.get("$rewindTo")
        changes = record.get("$set")
        session = changes if type(changes) is dict else record
        title = session.get("summary")
        if type(rewound_to) is str or type(record.get("id")) is str:
            self._end_waiting(collected)
        if type(rewound_to) is str:
            self.past.break_off()
            self._replace(collected, self._index_of_id.get(rewound_to, 0), ())
        elif type(record.get("id")) is str:
            self._add_message(collected, record)
        elif type(session.get("messages")) is list:
            self.past.break_off()
            messages = dicts_in(session, "messages")
            for message in messages:  # a later record may replace a message by its id
                self.past.add(f"record {message.get('id')}")
            self._set_or_wait(collected, messages)
        elif session_in(record) is not None:
            self.past.needs_all()
            self._is_resuming = bool(self._messages)
        collected.close(str(record.get("type") or next(iter(record))), None)
        self._time = collected.timestamp
        if "id" not in record and type(title) is str and title.strip():
            last_event = collected.events[-1]
            # no other code has the event yet, so a change in place is safe
            force_setattr(last_event, "meta", {**last_event.meta, "title": title})

    def _add_message(self, collected: RecordEvents, record: Fields) -> None:
        """Add a message, or replace the message that had its id."""
        if collected.stored:
            self._redacted.add(record["id"])
        else:
            self._redacted.discard(record["id"])
        index = self._index_of_id.get(record["id"])
        if index is None and not self._messages:
            self.past.needs_all()
        # A message that comes again is read after the message before it.
        if index is not None and (index == 0 or self._messages[index - 1].end <= self.past.start):
            self.past.break_off()
        self._is_message_again = index is not None and self._messages[index].record == record
        if index is None:
            self._replace(collected, len(self._messages), (record,))
        elif not self._is_message_again:
            self._replace(
                collected,
                index,
                (record, *(message.record for message in self._messages[index + 1 :])),
            )

    def _set_or_wait(self, collected: RecordEvents, messages: list[Fields]) -> None:
        """Set the messages of the session. The context that a resumed session sets first is stored
        until the session sets all its messages, because Gemini CLI never sends a context alone.
        """
        if self._is_resuming and len(messages) == 1 and _is_context(messages[0]):
            self._waiting = messages
        else:
            self._waiting = None
            self._set_messages(collected, messages)

    def _end_resuming(self) -> list[Fields] | None:
        """Return the context that waits, which waits no more."""
        waiting = self._waiting
        self._waiting = None
        self._is_resuming = False
        return waiting

    def _end_waiting(self, collected: RecordEvents) -> None:
        """Set the context that waits, because a message follows that is not set with it."""
        waiting = self._end_resuming()
        if waiting is not None:
            self._set_messages(collected, waiting)

    def _follow_context(self, collected: RecordEvents, messages: Sequence[Fields]) -> None:
        """If the messages begin with a changed context, replace the context in the prompt. All
        other messages stay in the prompt.
        """
        if not self._messages or not messages or not self._messages[0].shown:
            return
        old_record = self._messages[0].record
        new_record = messages[0]
        is_same = (
            old_record.get("id") == new_record.get("id")
            and _is_context(old_record)
            and _is_context(new_record)
        )
        if is_same and not _is_same_message(old_record, new_record):
            self._messages[0] = self._messages[0]._replace(record=new_record)
            collected.timestamp = read_time(new_record.get("timestamp"))[0]
            self._show_context(collected)

    def _show_context(self, collected: RecordEvents) -> None:
        """Replace the first event of the prompt by the present context."""
        text = joined_text(content_of(self._messages[0].record.get("content")))
        before = self.shown.ids()
        self._context_at = collected.version
        collected.put(
            change_of_prompt(
                before, [text, *before[1:]], "system prompt", metadata=_CONTEXT_REPLACED
            )
        )

    def _count_same(self, messages: Sequence[Fields]) -> tuple[int, int]:
        """Compare the current messages with ``messages`` from the beginning, and return for each
        list how many messages are the same. The two numbers may differ, because results may be in
        separate messages.
        """
        index = 0
        known_results: dict[Any, Content] = {}
        new_results = {
            call_id: result
            for record in messages
            for call_id, result in _results_in(record).items()
        }
        for count, record in enumerate(messages):
            same_index = self._find_same(record, index)
            if same_index is None:
                if not _repeats_results(record, known_results, self._redacted):
                    return index, count
                continue
            old_results = _results_in(self._messages[same_index].record)
            if any(
                new_results.get(call_id, result) != result
                for call_id, result in old_results.items()
            ):
                return index, count
            known_results |= old_results
            self._change_id(same_index, record.get("id"))
            index = same_index + 1
        return index, len(messages)

    def _find_same(self, record: Fields, index: int) -> int | None:
        """Return the index of the next current message that gives a model the same text as
        ``record``, or None. Hidden messages are skipped.
        """
        for candidate in range(index, len(self._messages)):
            message = self._messages[candidate]
            if self._is_same(message.record, record):
                return candidate
            if message.shown:
                return None
        return None

    def _is_same(self, former: Fields, latter: Fields) -> bool:
        """Return whether a model gets the same text from two messages. What a redacted message said
        is not known, so a message with its id counts as the same.
        """
        if former == latter:
            return True
        name = former.get("id")
        if type(name) is str and name in self._redacted and name == latter.get("id"):
            return True
        return _is_same_message(former, latter)

    def _change_id(self, index: int, new_id: Any) -> None:
        """Give a current message the id that the same message has now."""
        old_record = self._messages[index].record
        if type(new_id) is str and new_id not in self._index_of_id:
            self._index_of_id.pop(str(old_record.get("id")), None)
            self._index_of_id[new_id] = index
            self._messages[index] = self._messages[index]._replace(
                record={**old_record, "id": new_id}
            )

    def _set_messages(self, collected: RecordEvents, messages: Sequence[Fields]) -> None:
        """Replace all messages of the session. Messages that stay the same make no events."""
        self._follow_context(collected, messages)
        same_count, repeated_count = self._count_same(messages)
        following = messages[repeated_count:]
        snapshot = self._new_snapshot(following)
        if snapshot:
            self._compact(collected, same_count, following, snapshot)
        else:
            self._replace(collected, same_count, following)

    def _compact(
        self,
        collected: RecordEvents,
        same_count: int,
        following: Sequence[Fields],
        snapshot: str,
    ) -> None:
        """Add the condensation of a compaction. The messages in ``following`` come after the first
        ``same_count`` messages. They begin with the summary ``snapshot``, and leave out the
        summarized messages.
        """
        ids = {str(message.get("id")) for message in following}
        lost_numbers = (
            number
            for number, message in enumerate(self._messages, 1)
            if message.shown and str(message.record.get("id")) not in ids
        )
        last_lost = max(lost_numbers, default=0)
        # The messages after the last summarized one are in ``following`` too, and are added again
        # below. The summarized messages stay until the condensation forgets them.
        self._take_back(collected, max(same_count, last_lost), following)
        version = self._messages[same_count - 1].end if same_count else 0
        shown_ids = self.shown.ids()
        context = None
        if same_count and self._context_at >= 0:
            context = summary_id(self._context_at)
        kept_ids = frozenset(
            event_id for event_id in shown_ids if 0 <= event_id < version or event_id == context
        )
        forgotten_ids = tuple(event_id for event_id in shown_ids if event_id not in kept_ids)
        self.calls.forget(forgotten_ids)
        collected.timestamp = read_time(following[0].get("timestamp"))[0]
        fields: Fields = {
            "summary": snapshot,
            "summary_offset": len(kept_ids),
            "metadata": {"reason": "tokens"},
        }
        collected.add(CondensationAction, forgotten_event_ids=forgotten_ids, **fields)
        self._drop(same_count)
        self._index_of_id[str(following[0].get("id"))] = same_count
        self._newest_calls = NewestCalls()
        self._messages.append(
            _CurrentMessage(following[0], collected.version, shown=True, calls=NewestCalls())
        )
        self._replace(collected, same_count + 1, following[1:])

    def _new_snapshot(self, messages: Sequence[Fields]) -> str:
        """Return the text of the first message if the message is a new snapshot of the session. A
        snapshot replaces all earlier messages. Return an empty text if the message is not a new
        snapshot.
        """
        if not messages or messages[0].get("type") != "user":
            return ""
        first_id = messages[0].get("id")
        if any(message.record.get("id") == first_id for message in self._messages):
            return ""
        text = joined_text(content_of(messages[0].get("content")))
        return text if _SNAPSHOT in text else ""

    def _replace(self, collected: RecordEvents, index: int, records: Sequence[Fields]) -> None:
        """Replace all messages from ``index`` on by ``records``."""
        self._take_back(collected, index, records)
        for record in records:
            event_count = len(collected.events)
            collected.timestamp = read_time(record.get("timestamp"))[0]
            self._read_message(collected, record)
            self._index_of_id.setdefault(str(record.get("id")), len(self._messages))
            self._messages.append(
                _CurrentMessage(
                    record,
                    collected.version,
                    collected.shows_since(event_count),
                    self._newest_calls.copy(),
                )
            )

    def _take_back(self, collected: RecordEvents, index: int, records: Sequence[Fields]) -> None:
        """Take back all messages from ``index`` on. If the View shows one of these messages, add a
        retraction. ``records`` are the records that come next. If these records repeat the
        messages, the reason of the retraction is ``WRITTEN_AGAIN``.
        """
        version = self._messages[index - 1].end if index else 0
        if index < len(self._messages):
            self._newest_calls = self._calls_before(index)
        shown_record_ids = {
            str(message.record.get("id")) for message in self._messages[index:] if message.shown
        }
        if shown_record_ids:
            come_again = shown_record_ids <= {str(record.get("id")) for record in records}
            collected.timestamp = None
            self.calls.forget(range(version, collected.version))
            reason = WRITTEN_AGAIN if come_again else ""
            collected.add(Retraction, version=version, reason=reason)
            if version <= self._context_at:
                self._context_at = -1
                if index:
                    self._show_context(collected)
        self._drop(index)

    def _calls_before(self, index: int) -> NewestCalls:
        """Return the newest calls before the message ``index``."""
        return self._messages[index - 1].calls.copy() if index else NewestCalls()

    def _drop(self, index: int) -> None:
        """Forget the messages from ``index`` on."""
        for message in self._messages[index:]:
            self._index_of_id.pop(str(message.record.get("id")), None)
        del self._messages[index:]

    def _read_message(self, collected: RecordEvents, record: Fields) -> None:
        """Add the events of a message."""
        parts = parts_of(record.get("content"))
        if record.get("type") == "user":
            # a message to the model writes the results of the last calls a second time
            last = self._messages[-1].record if self._messages else {}
            if _repeats_results(record, _results_in(last)):
                self._is_message_again = True
                return
            for response in held_in(parts, "functionResponse"):
                self._answer(
                    collected,
                    response.get("id"),
                    [{"functionResponse": response}],
                    response.get("name"),
                )
            content = content_of(record.get("content"))
            text = joined_text(content).strip()
            if content and (text or not isinstance(content, str)):
                source = "environment" if text.startswith(_CONTEXTS) else "user"
                is_command = text.startswith(("/", "?"))
                if not is_command:
                    self._supply_results(collected)
                collected.add(Message, content=content, source=source, shown=not is_command)
        elif record.get("type") == "gemini":
            call_fields = {"model": record.get("model"), "reply": record.get("id")}
            collected.meta = usage_meta(record.get("tokens"), _USAGE, **call_fields)
            self._read_response(collected, record, parts)
            if collected.meta:  # a reply without text and calls
                collected.add(Annotation, name="gemini")

    def _read_response(self, collected: RecordEvents, record: Fields, parts: list[Fields]) -> None:
        """Read a reply of the model. If the content has no calls and no thinking, read them from
        the fields ``toolCalls`` and ``thoughts``.
        """
        results = {
            item.get("id"): item
            for item in dicts_in(record, "toolCalls")
            if type(item.get("id")) is str
        }
        calls = held_in(parts, "functionCall")
        thoughts = thoughts_in(parts)
        if not calls and not thoughts:
            for item in dicts_in(record, "thoughts"):
                subject = text_or_empty(item, "subject")
                thought = text_or_empty(item, "description")
                thoughts.append(f"**{subject}** {thought}" if subject else thought)
            calls = dicts_in(record, "toolCalls")
        collected.response = str(record.get("id"))
        if self._newest_calls.response not in (None, collected.response):
            self._supply_results(collected)
        for action in read_reply(collected, parts, thoughts, calls):
            self._newest_calls.call(action)
        collected.thinking = []
        for call in calls:
            call_id = call.get("id")
            result = results.get(call_id, {}) if type(call_id) is str else {}
            if result.get("result"):
                failed = result.get("status") in ("error", "cancelled")
                self._answer(collected, call["id"], result["result"], is_error=failed)

    def _answer(
        self,
        collected: RecordEvents,
        call_id: Any,
        result: Any,
        tool: Any = "",
        *,
        is_error: bool = False,
    ) -> None:
        """Add the result of a call. A second result of a call is not shown."""
        content, has_failed = result_of(result, call_id)
        flags = {} if self.calls.is_open(call_id) else {"shown": False}
        collected.answer(call_id, content, is_error=is_error or has_failed, tool=tool, **flags)
        self._newest_calls.answer(call_id)

    def _supply_results(self, collected: RecordEvents) -> None:
        """Gemini CLI sends the calls of an interrupted turn without their results, which no other
        server accepts.
        """
        self.supply_results(collected, self._newest_calls, NO_RESULT)
        self._newest_calls = NewestCalls()


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    refuses=lambda record: within(record, "type") == "qwen",
    expected=(
        "a record of Gemini CLI: with 'id' and 'type', or with 'sessionId', '$set' or '$rewindTo'"
    ),
    decoder=GeminiDecoder,
    conversation=first_named(session_in),
    files=_Documents(),
    time=lambda record: read_time(within(record, "timestamp") or within(record, "startTime")),
    kept_in=("~/.gemini/tmp",),
    begun_by=_begun_by,
    source_id=member("id"),
)
