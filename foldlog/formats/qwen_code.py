"""Sessions of Qwen Code: lines in ``chats/SESSION.jsonl``. A line names its parent line.

    {"uuid", "parentUuid", "sessionId", "type": …, "message": {"role", "parts"}}    a content of
                                                                                    Google's API
    user                 Message; from the environment if Qwen Code wrote the text
    assistant            a Message, or an Action for each call; with the thinking of the model
    tool_result          an Observation for each result
    system               an Annotation, by its ``subtype``:
        chat_compression     first events for the contents that stay, then a CondensationAction of
                             all earlier shown events
        custom_title         the title; ``parent_session`` names the session that started this one
        agent_bootstrap      copies of the contents with which a sub-agent began
        slash_command        takes back the user's message, because the message was a command and
                             was not sent to the model

The View is the branch that ends in the last line. If a line does not continue the branch, a
Retraction comes first. If the parent of a line is missing, the line follows the previous line. A
line that is not sent to a model, such as a title, is not a part of a branch. A View does not show
the lines of sub-agents, although the file of a session has them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from foldlog.eventstore import CondensationAction, Event, Message, Retraction, Source
from foldlog.formats.files.sub_agent_meta import begun_by
from foldlog.formats.format import Format, first_named
from foldlog.formats.gemini_cli import (
    content_of,
    held_in,
    parts_of,
    read_reply,
    result_of,
    thoughts_in,
)
from foldlog.formats.open_calls import NewestCalls, OpenCalls
from foldlog.formats.record import (
    Fields,
    dict_or_empty,
    dicts_in,
    has,
    joined_text,
    member,
    text_or_empty,
    within,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts

NAME = "qwen-code"


_TYPES = ("user", "assistant", "tool_result", "system")
_BY_USER = (None, "mid_turn_user_message", "cron")
_NOT_SENT = ("realtime_message", "code_mode_tool_result")
"""Qwen Code does not send the contents of lines with these subtypes to a model."""
_FAILED = ("error", "cancelled")
"""The states of calls that failed."""
_NO_RESULT = (
    "Tool execution result was not recorded — likely interrupted by network failure, abort, or"
    " process exit. Treat as failure and retry if needed."
)
"""The result that Qwen Code sends its model, in its next turn, for a call without a result."""
_WITHOUT_PARENT = (
    "a line names the parent {}, which no earlier line has, so the View shows the lines before it;"
    " Qwen Code resumes the session without them"
)
_USAGE = {
    "prompt_tokens": ("promptTokenCount", "toolUsePromptTokenCount"),
    "cached_tokens": ("cachedContentTokenCount",),
    "completion_tokens": ("candidatesTokenCount", "thoughtsTokenCount"),
    "reasoning_tokens": ("thoughtsTokenCount",),
    "total_tokens": ("totalTokenCount",),
}

_is_line = has(type=str, uuid=str, sessionId=str)


def _accepts(record: Any) -> bool:
    """Return whether a record may be a line of Qwen Code."""
    return _is_line(record) and record["type"] in _TYPES and "parentUuid" in record


def _matches(record: Any) -> bool:
    """Return whether a record is certainly a line of Qwen Code."""
    if not _accepts(record):
        return False
    if record["type"] == "system":
        return type(record.get("systemPayload")) is dict and type(record.get("subtype")) is str
    return type(within(record, "message", "parts")) is list


def _session_in(record: Any) -> str | None:
    """Return the session of a line, or of the sub-agent that wrote it."""
    if not _accepts(record):
        return None
    session = record["sessionId"]
    agent = text_or_empty(record, "agentId")
    return f"{session}/agent-{agent}" if record.get("isSidechain") is True and agent else session


_BEFORE = -1
"""The version before the window of a decoder that continues."""


class _Said(NamedTuple):
    """A message of the user: the version before it, and its text."""

    begun: int
    text: str


class _Decoder(FollowingDecoder):
    has_own_ids = True
    continues = True

    def set_up(self) -> None:
        self._ends: dict[str, int] = {}
        """Maps the id of a line to the version whose View ends with the line."""
        self._tip = 0
        self._newest_calls = NewestCalls()
        self._missing_parents = set[str]()
        self._is_sidechain: bool | None = None
        self._said: _Said | None = None
        """The last line, if it is a message of the user."""

    def facts(self) -> Facts:
        return {
            "is_sidechain": self._is_sidechain,
            "tip": self._tip,
            "has_open_calls": self._newest_calls.is_open,
        }

    def restore(self, facts: Facts) -> None:
        self._is_sidechain = facts["is_sidechain"]
        self._tip = _BEFORE

    def restore_after(self, facts: Facts) -> None:
        self._tip = facts["tip"]
        if facts.get("has_open_calls") and not self._newest_calls.is_open:
            self._newest_calls.begin_before_window()

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        self._newest_calls.follow(event)
        if isinstance(event, CondensationAction):
            forgotten = frozenset(event.forgotten_event_ids or ())
            self.calls.forget(forgotten)
            self._newest_calls.forget(forgotten)
        elif isinstance(event, Retraction):
            self.calls.forget(range(event.version, event.id))
            self._newest_calls = NewestCalls()

    def read(self, collected: RecordEvents, record: Fields) -> None:
        is_sidechain = record.get("isSidechain") is True
        if self._is_sidechain is None:
            self._is_sidechain = is_sidechain
        if is_sidechain is not self._is_sidechain:
            collected.shown = False
            self._read_line(collected, record)
            collected.close(_kind_of(record), None)
            return
        self._go_to(collected, record)
        begun = collected.version
        if record.get("subtype") == "slash_command":
            self.past.needs_all()
        self._read_line(collected, record)
        collected.take_stored()
        changes_view = any(event.shown or event.structural for event in collected.events)
        collected.close(_kind_of(record), record.get("systemPayload"))
        if changes_view:
            self._tip = collected.version
        # a line with the id of the line before it continues this line
        self._ends[record["uuid"]] = self._tip
        is_said = record["type"] == "user" and record.get("subtype") is None
        words = joined_text(content_of(within(record, "message", "parts")))
        if record.get("type") != "system" or record.get("subtype") == "slash_command":
            self._said = _Said(begun, words) if is_said else None

    def _go_to(self, collected: RecordEvents, record: Fields) -> None:
        """Take back the abandoned branch if a line continues from an earlier line."""
        parent = record["parentUuid"]
        is_rewound = record.get("subtype") == "rewind"
        root = 0 if parent is None or is_rewound else self._tip
        above = self._ends.get(parent, root) if type(parent) is str else root
        if type(parent) is str and self._ends.get(parent, _BEFORE) == _BEFORE:
            self.past.needs_all()
            is_new = parent not in self._missing_parents and record["uuid"] not in self._ends
            if is_new and not is_rewound:
                self._missing_parents.add(parent)
                self.report(_WITHOUT_PARENT.format(parent))
        if record["uuid"] not in self._ends and above != self._tip:
            self.past.needs_all()
            self._take_back(collected, above)

    def _take_back(self, collected: RecordEvents, version: int) -> None:
        """Take back all events after a version."""
        self.calls.forget(range(version, collected.version))
        self._newest_calls = NewestCalls()
        collected.add(Retraction, version=version, timestamp=None)

    def _read_line(self, collected: RecordEvents, record: Fields) -> None:
        """Add the events of a line, wherever it stands in the tree."""
        kind = record["type"]
        subtype = record.get("subtype")
        if kind == "system":
            self._read_system(collected, subtype, dict_or_empty(record, "systemPayload"))
            return
        message = record.get("message")
        if type(message) is not dict or subtype in _NOT_SENT:
            return
        if kind == "assistant":
            collected.response = record["uuid"]
            self._supply_results(collected)
            collected.tell(record.get("model"), None, record.get("usageMetadata"), **_USAGE)
        if kind == "user" and subtype is None:
            self._supply_results(collected)
        is_by_user = subtype in _BY_USER and record.get("provenance") in (None, "real_user")
        failed = within(record, "toolCallResult", "status") in _FAILED
        self._read_content(
            collected, message, "user" if is_by_user else "environment", failed=failed
        )

    def _supply_results(self, collected: RecordEvents) -> None:
        """Add the results that Qwen Code sends for calls without one."""
        if collected.shown:
            self.supply_results(collected, self._newest_calls, _NO_RESULT)
            self._newest_calls = NewestCalls()

    def _read_system(self, collected: RecordEvents, subtype: Any, payload: Fields) -> None:
        """Add the events of a line of the type ``system``, which are few."""
        match subtype:
            case "chat_compression" if type(history := payload.get("compressedHistory")) is list:
                self._compress(collected, dicts_in(history))
            case "agent_bootstrap":
                collected.is_copy = True
                for content in dicts_in(payload, "history"):
                    self._read_content(collected, content, "user")
                collected.is_copy = False
            case "slash_command" if _is_local(payload, self._said) and self._said is not None:
                self._take_back(collected, self._said.begun)
            case "custom_title" if title := text_or_empty(payload, "customTitle").strip():
                collected.meta = {"title": title}
            case "parent_session" if parent := text_or_empty(payload, "parentSessionId"):
                collected.meta = {"parent": f"{self.options.prefix}{parent}"}

    def _compress(self, collected: RecordEvents, history: list[Fields]) -> None:
        """Add events for the contents that stay, and forget all earlier events of the View. The
        first content of ``history`` is the summary.
        """
        former_ids = set(self.shown.ids())
        self.calls = OpenCalls()
        self._newest_calls = NewestCalls()
        summary = ""
        if history and history[0].get("role") == "user":
            summary = joined_text(content_of(history[0].get("parts")))
        time = collected.timestamp
        collected.timestamp = None
        for content in history[1:] if summary else history:
            self._read_content(collected, content, "user")
        collected.timestamp = time
        new_ids = [event_id for event_id in self.shown.ids() if event_id not in former_ids]
        collected.change(
            [*([summary] if summary else ()), *new_ids], "compaction", {"reason": "tokens"}
        )

    def _read_content(
        self, collected: RecordEvents, content: Fields, source: Source, *, failed: bool = False
    ) -> None:
        """Add the events of a content of Google's API: a reply, results, or a message."""
        parts = parts_of(content.get("parts"))
        if content.get("role") == "model":
            calls = held_in(parts, "functionCall")
            for call in read_reply(collected, parts, thoughts_in(parts), calls):
                if call.shown and not collected.is_copy:
                    self._newest_calls.call(call)
            return
        responses = held_in(parts, "functionResponse")
        for response in responses:
            call_id = response.get("id")
            result, has_failed = result_of(
                parts if call_id else [{"functionResponse": response}], call_id
            )
            shown = {} if self.calls.is_open(call_id) else {"shown": False}
            collected.answer(
                call_id, result, is_error=failed or has_failed, tool=response.get("name"), **shown
            )
            self._newest_calls.answer(call_id)
        text = content_of(parts)
        if text and not responses:
            collected.add(Message, content=text, source=source)


def _is_local(payload: Fields, last_command: _Said | None) -> bool:
    """Return whether ``payload`` is the result of the user's last command, and was not sent to a
    model.
    """
    shown = dicts_in(payload, "outputHistoryItems")
    is_answered = bool(shown) and all(item.get("type") == "assistant" for item in shown)
    is_result = payload.get("phase") == "result" and payload.get("sentToModel") is not True
    return (
        is_answered
        and is_result
        and last_command is not None
        and last_command.text == payload.get("rawCommand")
    )


def _kind_of(record: Fields) -> str:
    """Return the name of the annotation for a line."""
    return text_or_empty(record, "subtype") or str(record["type"])


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=_accepts,
    expected="a line of Qwen Code, with a type, a uuid, a parentUuid and a sessionId",
    decoder=_Decoder,
    conversation=first_named(_session_in),
    begun_by=begun_by,
    kept_in=("~/.qwen/projects", "~/.qwen/tmp"),
    source_id=member("uuid"),
    says_again=True,
)
