"""The skeleton of a Codex rollout: the fields that lists, figures and titles need."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, Struct

from foldlog.eventstore.usage import usage_of
from foldlog.formats.codex.lines import (
    ABORTED_RESULT,
    CONTEXT,
    FAILED_HEADER,
    has_failed,
    parent_of,
    texts_in,
    unmark,
)
from foldlog.formats.codex.usage import USAGE_RECORD, Totals, kept_total
from foldlog.formats.model_calls import UNNAMED, ModelCall
from foldlog.formats.record import Fields, dict_or_empty, time_in, within
from foldlog.formats.skeleton import Skeleton

_CALLS = frozenset(("function_call", "custom_tool_call", "local_shell_call"))
_OUTPUTS = frozenset(("function_call_output", "custom_tool_call_output"))
_ANSWERS = _CALLS | _OUTPUTS
_END_MAX = 2**63
"""No session has so many records."""
_COMMUNICATION = "inter_agent_communication"
_SAYS = "agent_message"
"""The types of lines and of items with a message from one agent to another."""
_SHELL = "local_shell"
"""The name of the tool of a call without a name."""


# Records hold JSON, so records never form reference cycles, and ``gc=False`` excludes their parts
# from the search for cycles, which took 2 % of an import (``benchmarks.hooks --rows logs``).
class _Payload(Struct, omit_defaults=True, gc=False):
    """The fields of a payload of any type that the skeleton needs."""

    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    role: str | None = None
    model: str | None = None
    output: Any = None
    content: Any = None
    forked_from_id: str | None = None
    thread_id: str | None = None
    forked_from_ordinal_exclusive: int | None = None
    info: Fields | None = None
    history_base: Fields | None = None
    source: Any = None
    parent_thread_id: str | None = None
    num_turns: int | None = None
    author: Any = UNSET
    recipient: Any = UNSET
    cwd: str | None = None
    git: Fields | None = None


class _Line(_Payload, omit_defaults=True, gc=False):
    """A line of a rollout. In the first releases a line was a payload, so the class also has the
    fields of a payload.
    """

    timestamp: str | None = None
    ordinal: int | None = None
    record_type: str | None = None
    payload: _Payload | None = None
    instructions: Any = UNSET


class CodexSkeleton(Skeleton):
    """Counts the lines of a rollout."""

    record: ClassVar[type[Struct]] = _Line
    have_ids = False

    def set_up(self) -> None:
        self._totals = msgspec.convert(self.state.extra.get("totals", {}), Totals)

    def encode(self) -> bytes:
        self.state.extra["totals"] = msgspec.to_builtins(self._totals)
        return super().encode()

    def identity(self, skeleton: _Line) -> tuple[str | None, str | None]:
        return (skeleton.payload or skeleton).id, skeleton.timestamp

    def is_record(self, skeleton: _Line) -> bool:
        return bool(_kind_of(skeleton))

    def count(self, skeleton: _Line) -> None:
        kind = _kind_of(skeleton)
        payload = skeleton.payload or skeleton
        change = self._take_turn(kind, payload)
        is_answer = payload.role == "assistant" or payload.type in _ANSWERS
        is_activity = change == "annotation"
        self.count_time(skeleton.timestamp, is_activity=is_activity, is_answer=is_answer)
        if kind == "response_item":
            self._count_item(payload)
            return
        extra = self.state.extra
        if kind == "session_meta":
            self._take_session(skeleton)
        elif kind == USAGE_RECORD:
            extra["ancestor"] = payload.thread_id or extra.get("ancestor")
        elif kind == "turn_context":
            extra["model"] = payload.model or extra.get("model")
            self.note_place(payload.cwd, model=payload.model)
        elif kind == "event_msg":
            self._take_notice(skeleton)
        elif kind == _COMMUNICATION:
            self._count_from_agent(payload)
            return
        if not is_activity:
            self._forget_calls(kind)
        if change == "condensation":
            self.state.compactions += 1
        self.count_part(change)

    def _take_turn(self, kind: str, payload: _Payload) -> str:
        """Count the turns of the user, and return what the line does to the events before it. A
        rollback of more turns than there are since the last compaction is a condensation.
        """
        extra = self.state.extra
        turns: int = extra.get("turns", 0)
        rolled_back = _turns_rolled_back(kind, payload)
        if kind == "compacted" or rolled_back > turns:
            extra["turns"] = 0
            return "condensation"
        if rolled_back:
            extra["turns"] = turns - rolled_back
            return "retraction"
        if kind == "session_meta":
            extra["turns"] = 0
        elif _begins_turn(kind, payload):
            extra["turns"] = turns + 1
        return "annotation"

    def _forget_calls(self, kind: str) -> None:
        """Note that a compaction or a rollback takes the open calls out of the View. A rollback of
        a rollout without any turn takes nothing out.
        """
        if kind == "compacted" or "user" in self.state.kinds:
            self.leave_calls()
            self.state.extra["forgotten"] = [*self.state.waiting]

    def _take_session(self, skeleton: _Line) -> None:
        """Note what the first line of a session says. A fork has such a line of its parent too."""
        extra = self.state.extra
        session = skeleton.payload or skeleton
        base = None if skeleton.payload is None else _base_of(skeleton.payload)
        if base is not None and self.state.conversation is None:
            extra["follows"] = base
        if self.state.conversation is None:
            self.state.parent = parent_of(msgspec.to_builtins(session))
        self.state.conversation = self.state.conversation or session.id
        self.note_place(session.cwd, within(session.git, "branch"))
        extra["ancestor"] = session.forked_from_id or session.id or extra.get("ancestor")

    def _take_notice(self, skeleton: _Line) -> None:
        """Count what a line of the type ``event_msg`` says: an aborted turn, or a usage."""
        notice = skeleton.payload or skeleton
        if notice.type == "turn_aborted":
            forgotten = self.state.extra.get("forgotten", ())
            for call_id in [name for name in self.state.waiting if name not in forgotten]:
                self.count_result(call_id, failed=True)
                self.count_time(None)  # such a result has no time
        elif notice.type == "token_count":
            self._spend(skeleton.timestamp, skeleton.payload)

    @property
    def follows(self) -> tuple[str, int] | None:
        base: tuple[str, int] | None = self.state.extra.get("follows")
        return base

    def is_number(self, record: bytes, number: int) -> bool:
        return _decode_number(record).ordinal == number

    def blank(self, skeleton: _Line) -> None:
        skeleton.instructions = UNSET if skeleton.instructions is UNSET else ""
        for part in (skeleton, skeleton.payload):
            if part is None:
                continue
            if part.output:
                # A failed call has no mark except the text of its output.
                part.output = FAILED_HEADER if has_failed(part.output) else ""
            if part.content:
                part.content = []
            part.source = None
            part.cwd = None
            part.git = None
            part.author = UNSET if part.author is UNSET else None
            part.recipient = UNSET if part.recipient is UNSET else None

    def error_in(self, record: bytes) -> str:
        line: Any = self._decode(record)
        output = (line.payload or line).output
        if output is None:  # a call of an aborted turn has no output
            return ABORTED_RESULT
        text = unmark(dict_or_empty(output).get("content", output))
        return text if isinstance(text, str) else "\n".join(texts_in(text))

    def _count_item(self, item: _Payload) -> None:
        """Count an item of the model's API."""
        if item.type in _CALLS:
            unnamed = _SHELL if "shell" in item.type else None
            self.count_call(item.call_id or item.id, item.name or unnamed)
        elif item.type in _OUTPUTS:
            self.count_result(item.call_id, failed=has_failed(item.output))
        elif item.type == "message":
            words = "\n".join(texts_in(item.content))
            is_context = _is_context(item)
            labels = {"assistant": "agent", "developer": "system", "system": "system"}
            user = "environment" if is_context else "user"
            self.count_part(labels.get(item.role or "", user))
            if item.role == "user" and words and not is_context:
                self.note_request(words)
        elif item.type == _SAYS:
            self._count_from_agent(item)
        else:
            self.count_part("annotation")

    def _count_from_agent(self, payload: _Payload) -> None:
        """Count a message from one agent to another, which a View shows as one of the user."""
        if UNSET in (payload.author, payload.recipient):
            self.count_part("annotation")
            return
        content = payload.content
        self.count_part("user")
        self.note_request(content if type(content) is str else "\n".join(texts_in(content)))

    def _spend(self, at: str | None, payload: _Payload | None) -> None:
        """Count the usage of the last call: see ``CodexCalls``."""
        info = dict_or_empty(None if payload is None else payload.info)
        extra = self.state.extra
        last = info.get("last_token_usage")
        total = dict_or_empty(info, "total_token_usage")
        seen = kept_total(total)
        if type(last) is not dict or seen == extra.get("seen", {}):
            return
        call = ModelCall(time_in(at), extra.get("model") or UNNAMED, usage_of(last))
        self.replies.add(self._totals.named(call, total, extra.get("ancestor")))
        extra["seen"] = seen


class _Numbered(Struct):
    """The field of a line with its number."""

    ordinal: int | None = None


_decode_number = msgspec.json.Decoder(_Numbered).decode


def _base_of(session: _Payload) -> tuple[str, int] | None:
    """Return the session that a session continues, and how many of its records: see
    ``base_end``. A session that continues no record continues no session.
    """
    base = dict_or_empty(session.history_base)
    end = base.get("end_ordinal_exclusive")
    thread = base.get("thread_id")
    if type(end) is not int or not 0 < end < _END_MAX or type(thread) is not str:
        return None
    is_fork = session.forked_from_id and session.forked_from_ordinal_exclusive == end
    if is_fork and session.forked_from_id is not None:
        thread = session.forked_from_id
    return thread, end


def _turns_rolled_back(kind: str, payload: _Payload) -> int:
    """Return the number of turns that a line takes back."""
    is_rollback = kind == "event_msg" and payload.type == "thread_rolled_back"
    return max(payload.num_turns or 0, 0) if is_rollback else 0


def _begins_turn(kind: str, payload: _Payload) -> bool:
    """Return whether a line begins a turn: a message of the user, or of another agent."""
    if kind == "response_item" and payload.type == "message":
        return payload.role == "user" and not _is_context(payload)
    is_of_agent = kind == _COMMUNICATION or (kind == "response_item" and payload.type == _SAYS)
    return is_of_agent and UNSET not in (payload.author, payload.recipient)


def _is_context(payload: _Payload) -> bool:
    """Return whether Codex itself wrote a message as the user."""
    texts = texts_in(payload.content)
    return bool(texts) and all(map(CONTEXT.match, texts))


def _kind_of(line: _Line) -> str:
    """Return the type of a line. A line of the first releases has no type, so return the type that
    today's Codex would write.
    """
    if line.payload is not None:
        return line.type
    if line.type:
        return "response_item"
    is_session = line.instructions is not UNSET and line.id is not None and line.role is None
    return "session_meta" if is_session else line.record_type or ""
