"""The skeleton of Claude Code's lines: the fields that lists, figures and titles need."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from foldlog.eventstore.usage import SYNTHETIC_MODEL, usage_of
from foldlog.formats.blocks import content_of, texts_of
from foldlog.formats.claude_code.branches import SAID
from foldlog.formats.claude_code.lines import (
    EARLY_MAX,
    LINES_MAX,
    ONE_ID,
    RESULT_FIRST,
    SAYING_BESIDE,
    TITLES,
    WITHOUT_PARENT,
    Kept,
    Titles,
    cost_in,
    number_of,
    said_beside,
)
from foldlog.formats.hash_set import HashSet
from foldlog.formats.model_calls import UNNAMED
from foldlog.formats.open_calls import NO_RESULT, describe_supplied
from foldlog.formats.record import Fields, text_or_none
from foldlog.formats.skeleton import Skeleton
from foldlog.projections import words_of
from foldlog.projections.refusals import words_in_refusal_text


# Records hold JSON, so records never form reference cycles, and ``gc=False`` excludes their parts
# from the search for cycles, which took 2 % of an import (``benchmarks.hooks --rows logs``).
class _Block(Struct, omit_defaults=True, gc=False):
    type: str = ""
    id: str | None = None
    name: str | None = None
    tool_use_id: str | None = None
    is_error: bool | None = None
    text: str | None = None


class _Message(Struct, omit_defaults=True, gc=False):
    role: str | None = None
    id: str | None = None
    model: str | None = None
    content: str | list[_Block] | None = None
    usage: Fields | None = None


class _Line(Struct, omit_defaults=True, gc=False):
    type: str
    uuid: str | None = None
    parentUuid: str | UnsetType | None = UNSET
    logicalParentUuid: str | UnsetType | None = UNSET
    timestamp: str | None = None
    requestId: str | None = None
    sessionId: str | None = None
    agentId: str | None = None
    isSidechain: bool | None = None
    isMeta: bool | None = None
    isCompactSummary: bool | None = None
    isApiErrorMessage: bool | None = None
    subtype: str | None = None
    leafUuid: str | None = None
    summary: str | None = None
    aiTitle: str | None = None
    customTitle: str | None = None
    cwd: str | None = None
    gitBranch: str | None = None
    costUSD: Any = None
    foldlog: Any = None
    compactMetadata: Any = None
    content: Any = None
    attachment: Any = None
    rendered: Any = None
    message: _Message | None = None


class _Error(Struct):
    type: str = ""
    tool_use_id: str | None = None
    is_error: bool | None = None
    content: Any = None


class _Errors(Struct):
    content: list[_Error] = []


class _LineOfErrors(Struct):
    message: _Errors


_decode_errors = msgspec.json.Decoder(_LineOfErrors, strict=False).decode


def _failed_results(record: bytes) -> Iterator[tuple[str | None, str]]:
    """Yield the id of each failed call whose result is in a record, and the words of the result."""
    for block in _decode_errors(record).message.content:
        if block.type == "tool_result" and block.is_error:
            yield block.tool_use_id, words_of(content_of(block.content))


def _results_in(message: _Message) -> list[_Block]:
    blocks = message.content if type(message.content) is list else []
    return [block for block in blocks if block.type == "tool_result"]


def _is_blank(message: _Message) -> bool:
    """Return whether a message has only white space, or what a redaction left of its texts."""
    if type(message.content) is str:
        return not message.content.strip()
    blocks = message.content if type(message.content) is list else []
    said = [block for block in blocks if block.type not in _UNSAID]
    return all(block.type == "text" and not (block.text or "").strip() for block in said)


_UNSAID: Final = frozenset(("tool_result", "thinking", "redacted_thinking"))
_LINES_OF_CALLS_MAX: Final = 1_000
"""A response whose results are not complete after so many lines is not followed any further."""
_IDS_MAX: Final = 200_000
"""The ids of a source with more lines than this number are not kept in memory."""
_CHECKSUM: Final = slice(1, 4)
"""A ``HashSet`` keeps ten bits of a checksum by its bucket, and these bytes have the others."""
_REPLIES: Final = frozenset(("text", "tool_use"))
_RESULTS: Final = frozenset(("tool_result",))
_BESIDE: Final = ("type", "subtype", "content", "attachment", "rendered")
"""The fields of a line that is no message, of which the model may get a text."""


def _is_answer(message: _Message) -> bool:
    is_reply = message.role == "assistant"
    if type(message.content) is not list:
        return is_reply
    answers = _REPLIES if is_reply else _RESULTS
    return not answers.isdisjoint([block.type for block in message.content])


def _calls_in(message: _Message) -> list[_Block]:
    blocks = message.content if type(message.content) is list else []
    return [block for block in blocks if block.type == "tool_use"]


class _Parallel(Struct):
    """The calls of the newest response that has calls, as ``NewestCalls`` has them.

    ``open``   maps the ids of the calls without results to their tools
    ``lines``  checksums of the ids of the lines since the first call
    """

    response: str = ""
    open: dict[str, str] = {}
    has_answer: bool = False
    lines: list[int] = []


class ClaudeCodeSkeleton(Skeleton):
    record: ClassVar[type[Struct]] = _Line

    def set_up(self) -> None:
        extra = self.state.extra
        self._titles = Titles(
            extra.get("rank", 0), extra.get("lines", b""), extra.setdefault("awaiting", {})
        )
        """Knows the checksums of the ids of the newest lines only, because a summary usually names
        a line that was read shortly before.
        """
        self._told: Fields | None = None
        """The ``usage`` of the last line of a reply. ``_usage`` caches the counts, because most
        lines of a reply repeat the usage.
        """
        self._usage: dict[str, int] = {}
        self._ids: HashSet | None = HashSet(_CHECKSUM)
        """Checksums of the ids of all lines, to find a line without its parent. None if a line
        before has an id that is not here.
        """
        self._lines = 0
        if self.state.records and len(set(self._titles.lines)) >= LINES_MAX:
            self._ids = None
        elif self.state.records:
            for line in self._titles.lines:
                self._ids.add(line.to_bytes(4))
        self._missing = set[str]()
        self._is_missing = False
        """Whether no line before the present line is its parent."""
        self._early: list[str] = extra.setdefault("early", [])
        """The ids of the calls whose results were written before them."""
        self._unnamed_reply: str | None = None
        """The id of the last reply, if it has no id of its request."""
        self._was_asked = False
        """Whether a user wrote after this reply."""
        self._is_one_id_reported = False
        self._parallel = msgspec.convert(extra.get("parallel", {}), _Parallel)
        self._newest: str | None = None
        """The id of the newest line, which most lines name as their parent."""
        self._kept = Kept()
        self._side: bool | None = None
        if self.state.records:
            self._side = self.state.parent is not None

    def encode(self) -> bytes:
        self.state.extra["lines"] = array("I", self._titles.lines).tobytes()
        self.state.extra["rank"] = self._titles.rank
        if self._parallel.open:
            self.state.extra["parallel"] = msgspec.to_builtins(self._parallel)
        else:
            self.state.extra.pop("parallel", None)
        return super().encode()

    def identity(self, skeleton: _Line) -> tuple[str | None, str | None]:
        return skeleton.uuid, skeleton.timestamp

    def count(self, skeleton: _Line) -> None:
        state = self.state
        kind = skeleton.type
        message = skeleton.message
        if state.conversation is None and skeleton.sessionId:
            self._store_session(skeleton)
        if skeleton.foldlog is not None and not skeleton.isSidechain:
            self._store_hand_over(skeleton)
        named = getattr(skeleton, TITLES[kind]) if kind in TITLES else None
        state.title = self._titles.of(kind, skeleton.uuid, named, skeleton.leafUuid) or state.title
        if skeleton.cwd:
            if message is None or message.model == SYNTHETIC_MODEL:
                model = None
            else:
                model = message.model
            self.note_place(skeleton.cwd, skeleton.gitBranch, model)
        # Most lines come after the first message of the session itself, and begin no chain.
        begins_chain = self._side is not False and self._begin_chain(skeleton)
        self._find_parent(skeleton, begins_chain=begins_chain)
        is_of_view = (skeleton.isSidechain is True) == (self._side is True)
        is_summary = kind == "user" and message is not None and skeleton.isCompactSummary is True
        is_compaction = is_summary and is_of_view
        is_answer = message is not None and _is_answer(message)
        self.count_time(skeleton.timestamp, is_activity=not is_compaction, is_answer=is_answer)
        # The View hides the text that an error of the API left, but no call.
        is_error = skeleton.isApiErrorMessage is True and not (message and _calls_in(message))
        self.is_shown = is_of_view and not is_error
        self.reply = None
        if is_of_view:
            self._follow(skeleton)
        if is_compaction:
            self._parallel = _Parallel()
            self.leave_calls()
            state.compactions += 1
            self.count_part("condensation")
        elif kind == "user" and message is not None:
            self._count_user(skeleton, message)
        elif kind == "assistant" and message is not None:
            self._count_reply(skeleton, message)
        elif kind in SAYING_BESIDE:
            self._count_beside(skeleton)
        else:
            self.count_part("annotation")

    def _follow(self, line: _Line) -> None:
        """Note whether a line leaves the branch of the calls without results, and which of them get
        a result that the source does not have.
        """
        parallel = self._parallel
        message = line.message
        if line.type == "assistant" and message is not None:
            self.reply = message.id or line.uuid
        if not parallel.open:
            return
        parent = line.parentUuid
        if line.type in SAID and parent is not UNSET and not (message and _results_in(message)):
            follows = isinstance(parent, str) and number_of(parent) in parallel.lines
            if not follows or len(parallel.lines) > _LINES_OF_CALLS_MAX:
                self._parallel = parallel = _Parallel()
        if line.uuid is not None:
            parallel.lines.append(number_of(line.uuid))
        says = message is not None and type(message.content) is list
        if line.type == "assistant" and says and self.reply != parallel.response:
            if parallel.open and parallel.has_answer:
                self.on_finding(describe_supplied([*parallel.open.items()], NO_RESULT))
            self._parallel = _Parallel()

    def _begin_chain(self, line: _Line) -> bool:
        """Return whether a line begins the chain that the View shows: the first message, or the
        first message of the session itself after side chains. Call it until the latter has come.
        """
        if line.type not in SAID:
            return False
        is_side = line.isSidechain is True
        if self._side and (is_side or line.agentId is not None):
            return False
        self._side = is_side
        self.leave_calls()  # of side chains
        return True

    def _find_parent(self, line: _Line, *, begins_chain: bool) -> None:
        """Report a message whose parent is no earlier line. After a compaction, a message may name
        a line that the compaction keeps.
        """
        self._is_missing = False
        ids = self._ids
        if ids is None or line.uuid is None:
            return
        self._lines += 1
        if self._lines > _IDS_MAX:
            self._ids = None
            return
        if line.subtype == "compact_boundary":
            self._kept = Kept.by({"compactMetadata": line.compactMetadata})
        ids.add(self._titles.lines[-1].to_bytes(4))
        before = self._newest
        self._newest = line.uuid
        parent = line.parentUuid
        if line.type not in SAID:
            return
        if begins_chain or (line.isSidechain is True) != self._side:
            return
        if not isinstance(parent, str) or parent == before:
            return
        parent_line = number_of(parent).to_bytes(4)
        self._is_missing = not self._kept.continues_from(parent) and parent_line not in ids
        if self._is_missing and parent not in self._missing:
            self._missing.add(parent)
            self.on_finding(WITHOUT_PARENT.format(parent))

    def _find_one_id(self, reply: str | None) -> None:
        is_again = reply is not None and reply == self._unnamed_reply and self._was_asked
        if is_again and not self._is_one_id_reported:
            self._is_one_id_reported = True
            self.on_finding(ONE_ID.format(reply))
        self._unnamed_reply = reply
        self._was_asked = False

    def _call_of_view(self, line: _Line, call_id: str, tool: str) -> None:
        if not self._parallel.open and self._parallel.response != self.reply:
            lines = [] if line.uuid is None else [number_of(line.uuid)]
            self._parallel = _Parallel(self.reply or "", lines=lines)
        self._parallel.open[call_id] = tool

    @property
    def handed_over_in(self) -> str | None:
        session = self.state.extra.get("handed_over")
        return None if session == self.state.conversation else session

    def blank(self, skeleton: _Line) -> None:
        skeleton.summary = skeleton.aiTitle = skeleton.customTitle = None
        skeleton.cwd = skeleton.gitBranch = skeleton.compactMetadata = None
        skeleton.content = skeleton.attachment = skeleton.rendered = None
        content = None if skeleton.message is None else skeleton.message.content
        if skeleton.message is not None and type(content) is str:
            skeleton.message.content = ""
        if type(content) is list:
            for block in content:
                block.text = block.text and ""

    def error_in(self, record: bytes) -> str:
        texts = (words for _, words in _failed_results(record))
        return next((words for words in texts if words_in_refusal_text(words) is None), "")

    def _refused_calls(self) -> list[str | None]:
        """Return the ids of the calls that a person refused. Cost: the record is decoded again."""
        return [
            call_id
            for call_id, words in _failed_results(self._text)
            if words_in_refusal_text(words) is not None
        ]

    def _store_session(self, line: _Line) -> None:
        session = line.sessionId
        if not line.isSidechain:
            self.state.conversation = session
        elif line.agentId:
            self.state.conversation = f"{session}/agent-{line.agentId}"
            self.state.parent = session

    def _store_hand_over(self, line: _Line) -> None:
        if session := text_or_none(line.foldlog, "session"):
            self.state.extra.setdefault("handed_over", session)

    def _count_user(self, line: _Line, message: _Message) -> None:
        """Count a message of the user: its results, or its request."""
        content = message.content
        blocks = content if type(content) is list else []
        results = _results_in(message)
        has_failed = any(block.is_error is True for block in results)
        refused_calls = self._refused_calls() if has_failed else []
        for block in results:
            failed = block.is_error is True
            call_id = block.tool_use_id
            refused = failed and call_id in refused_calls
            if self._is_missing and call_id and call_id not in self.state.waiting:
                self._early[:] = [*self._early, call_id][-EARLY_MAX:]
            self.count_result(call_id, failed=failed, refused=refused)
            if self.is_shown and call_id:
                self._parallel.has_answer |= self._parallel.open.pop(call_id, None) is not None
        if len(results) == len(blocks) and results:
            return
        # the agent wrote the messages to its sub-agents
        is_for_sub_agent = line.isSidechain and line.agentId is None
        is_users = line.isMeta is not True and not is_for_sub_agent
        self._was_asked |= is_users and self.is_shown
        self.count_part("user" if is_users else "environment", is_blank=_is_blank(message))
        if is_users and self.state.asked is None and self.is_shown:
            texts = [block.text for block in blocks if block.text]
            self.note_request(content if type(content) is str else "\n".join(texts))

    def _count_beside(self, line: _Line) -> None:
        """Count a line that is no message, of which the model may get a text."""
        said = said_beside({name: getattr(line, name) for name in _BESIDE})
        if said is None:
            self.count_part("annotation")
            return
        content, source = said
        self.count_part(source)
        if source == "user" and self.is_shown:
            self.note_request("\n".join(texts_of(content)))

    def _count_reply(self, line: _Line, message: _Message) -> None:
        """Count a line of a reply: its calls or its text, and the usage of the reply."""
        blocks = message.content if type(message.content) is list else []
        uses = _calls_in(message)
        for block in uses:
            self.count_call(block.id, block.name)
            if self.is_shown and block.id:
                self._call_of_view(line, block.id, block.name or "")
            elif block.id:  # the View does not show that it waits
                self.state.left.append(block.id)
            if block.id in self._early:
                self._early.remove(block.id)
                self.state.waiting.pop(block.id, None)
                self._parallel.open.pop(block.id, None)
                self._parallel.has_answer = True
                self.on_finding(RESULT_FIRST.format(block.id))
        if not uses:
            says = any(block.type == "text" for block in blocks) or type(message.content) is str
            self.count_part("agent" if says else "annotation", is_blank=_is_blank(message))
        if message.id and line.requestId:
            both = f"{message.id} {line.requestId}"
        else:
            both = None
        reply = both or message.id or line.uuid or ""
        if message.usage is not None and self.is_shown:
            self._find_one_id(None if both else message.id)
        if message.usage != self._told:
            self._told = message.usage
            self._usage = usage_of(message.usage)
        if message.model == SYNTHETIC_MODEL:
            return
        if not line.cwd:  # ``count`` has noted the model together with the folder
            self.note_place(None, model=message.model)
        if self._usage:
            model = message.model or UNNAMED
            cost = cost_in(line.costUSD)
            self.replies.add_line(reply, line.timestamp, model, self._usage, cost)
