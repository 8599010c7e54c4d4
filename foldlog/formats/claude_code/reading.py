"""Turn Claude Code's lines into events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foldlog.eventstore import (
    CondensationAction,
    Event,
    Message,
    Observation,
    Retraction,
    Source,
    SystemMessage,
)
from foldlog.eventstore.usage import SYNTHETIC_MODEL
from foldlog.formats.blocks import (
    THINKING,
    content_of,
    kind_of,
    part_of,
    shown_blocks,
    texts_of,
)
from foldlog.formats.claude_code.branches import SAID, Switches, begins_main_chain, is_side
from foldlog.formats.claude_code.lines import (
    EARLY_MAX,
    ENVELOPE,
    RESULT_FIRST,
    TITLES,
    WITHOUT_PARENT,
    Kept,
    Titles,
    cleared_by,
    cost_in,
    is_boundary,
    is_summary,
    metadata_of,
    prompt_of,
    said_beside,
)
from foldlog.formats.event_fields import text_part
from foldlog.formats.json_text import key_of
from foldlog.formats.open_calls import NO_RESULT, NewestCalls, Recent
from foldlog.formats.record import Fields, omit, text_or_none, usage_meta
from foldlog.formats.record_events import FollowingDecoder, RecordEvents
from foldlog.formats.resuming import Facts, checksum

Shown = tuple[str | None, bool]
"""The tag of a shown event: the id of its line, and whether the event is a system prompt. A model
gets the system prompt before all messages.
"""
_RESPONSES_MAX = 100
"""The number of responses whose thinking the decoder remembers. Side chains run at the same time,
so the lines of several responses may alternate.
"""
_TAKEN = frozenset(("type", "uuid", "parentUuid", "timestamp", *ENVELOPE))

_NAMED_MAX = 5
_CLEARED = (
    "a microcompaction cleared {} results for the model ({}); the View still shows them, because no"
    " event of foldlog clears a result"
)


class ClaudeCodeDecoder(FollowingDecoder):
    """The View shows one chain: the chain of the session, or the chain of a sub-agent. The first
    line with a message decides which chain is shown. Claude Code 2.0 began some sessions with the
    side chain of a sub-agent, so the View shows a side chain until the chain of the session begins.
    """

    repeated = ("toolUseResult",)
    continues = True

    def set_up(self) -> None:
        self._is_begun = False
        self._begins = False
        """Whether the present line is the first line with a message."""
        self._side = False
        self._titles = Titles()
        self._thinking: Recent[str, tuple[Fields, ...]] = Recent(_RESPONSES_MAX)
        """Maps the id of a response to the thinking for its next action."""
        self._awaited = frozenset[int]()
        """Checksums of the lines before the window for which a title waits."""
        self._prompt: int | None = None
        """The key of the last system prompt with its tools."""
        self._early: Recent[str, Observation] = Recent(EARLY_MAX)
        """Results that were written before their calls, by the ids of the calls."""
        self._early_before = frozenset[int]()
        """Checksums of the calls whose results came before the window."""
        self._parallel = NewestCalls()
        self._switches = Switches(self.past)
        self._version = 0
        """The version after the events of the lines so far."""
        self._missing_parents = set[str]()
        self._boundary: Fields = {}
        """The ``compact_boundary`` line whose summary has not been read yet."""
        self._session: Any = None
        self._call_fields: Any = None
        self._usage: Fields = {}

    def facts(self) -> Facts:
        return {
            "is_begun": self._is_begun,
            "side": self._side,
            "names_parents": self._switches.names_parents,
            "rank": self._titles.rank,
            "awaiting": sorted(self._awaiting()),
            "prompt": self._prompt,
            "early": sorted(self._early_before | {checksum(call_id) for call_id in self._early}),
            "lacks_result": self._parallel.lacks_result,
            "open_calls": self._parallel.open_count,
        }

    def restore(self, facts: Facts) -> None:
        self._is_begun = facts["is_begun"]
        self._side = facts["side"]
        self._switches = Switches(self.past)
        self._switches.is_of_side = self._side
        self._switches.names_parents = facts["names_parents"]

    def restore_after(self, facts: Facts) -> None:
        self._titles.rank = facts["rank"]
        self._awaited = frozenset(facts["awaiting"])
        self._prompt = facts["prompt"]
        self._early_before = frozenset(facts.get("early", ())) - {
            checksum(call_id) for call_id in self._early
        }
        parallel = self._parallel
        lacks_result = facts.get("lacks_result") and not parallel.lacks_result
        # the window may begin in the middle of a response
        has_other_calls = facts.get("open_calls", 0) > len(parallel.open)
        if lacks_result or (has_other_calls and parallel.response is not None):
            parallel.begin_before_window()

    def _awaiting(self) -> frozenset[int]:
        """Return checksums of the lines for which a title waits."""
        return self._awaited | {checksum(uuid) for uuid in self._titles.awaiting}

    def tag(self, event: Event, collected: RecordEvents) -> Shown:
        return _line_id(collected), type(event) is SystemMessage

    def adopt(self, record: Any, event_ids: Sequence[int]) -> None:
        super().adopt(record, event_ids)
        self._version = self.adopted

    def follow_stored(self, event: Event) -> None:
        super().follow_stored(event)
        self._parallel.follow(event)
        if isinstance(event, CondensationAction | Retraction):
            self._boundary = {}
            self._parallel = NewestCalls()

    def read(self, collected: RecordEvents, record: Fields) -> None:
        kind = record["type"]
        message = record.get("message")
        is_of_side = is_side(record)
        self._begins = not self._is_begun and kind in SAID
        if self._begins:
            self._is_begun = True
            self._side = is_of_side
            self._session = record.get("sessionId")
            self._switches.is_of_side = is_of_side
        begins_main = self._side and begins_main_chain(record)
        if begins_main:
            self.past.needs_all()
            self._side = False
            self._switches.begin_main_chain()
        self._switches.grow(self._version)
        version = self._switches.follow(record)
        if begins_main:
            version = 0
        if version is not None:
            self._boundary = {}
            self._parallel = NewestCalls()
            self.return_to(collected, version)
        missing = self._switches.missing
        if missing is not None and missing not in self._missing_parents:
            self._missing_parents.add(missing)
            self.report(WITHOUT_PARENT.format(missing))
        collected.shown = is_of_side == self._side and not self._switches.is_copy
        if collected.shown and kind == "system" and is_boundary(record):
            self._boundary = record
        if collected.shown and kind == "system" and (cleared := cleared_by(record)):
            self.report(_CLEARED.format(len(cleared), ", ".join(cleared[:_NAMED_MAX])))
        self._tell(collected, record)
        content = message.get("content") if type(message) is dict else None
        if (
            collected.shown
            and is_summary(record)
            and (summary := "\n".join(texts_of(content_of(content))))
        ):
            self._condense(collected, summary)
        elif kind in SAID:
            self._read_message(collected, record, content, is_of_side=is_of_side)
        else:
            self._read_beside(collected, record)
        if collected.is_empty:
            fields = omit(record, *_TAKEN)
            collected.close(kind, content if kind in SAID and type(content) is list else fields)
        self._version = collected.version
        session = record.get("sessionId")
        if collected.shown and kind in SAID and session != self._session:
            self._begin_session(session, is_new_tree=version == 0)

    def _begin_session(self, session: Any, *, is_new_tree: bool) -> None:
        """Continue with a line of another session. If the line begins a new tree, the View hides
        all earlier lines, and the import reports the second session to the user, as a finding.
        """
        if is_new_tree:
            self.report(
                f"begins the session {session!r}, so the View no longer shows the lines of"
                f" {self._session!r}; import each session from its own file"
            )
        self._session = session

    def _read_beside(self, collected: RecordEvents, record: Fields) -> None:
        """Add the event of a line that is no message: what the model got of it, or a system
        prompt.
        """
        said = said_beside(record)
        prompt = prompt_of(record)
        if said is not None:
            collected.add(Message, content=said[0], source=said[1])
        elif prompt is not None:
            before = self._prompt
            self._prompt = key_of(prompt)
            text, tools = prompt
            # Claude Code may repeat an unchanged prompt
            is_new = self._prompt != before
            collected.add(
                SystemMessage, content=text, tools=tools, shown=collected.shown and is_new
            )

    def _read_message(
        self, collected: RecordEvents, record: Fields, content: Any, *, is_of_side: bool
    ) -> None:
        """Read the message of a line. A text before a call is the thought of the call."""
        is_agent = record["type"] == "assistant"
        # the agent wrote the messages to its sub-agents
        is_for_sub_agent = is_of_side and not (self._side and record.get("agentId"))
        user: Source = "environment" if record.get("isMeta") is True or is_for_sub_agent else "user"
        # the message of an API error is from Claude Code, not from the model
        if record.get("isApiErrorMessage") is True:
            flags = {"shown": False}
        else:
            flags = {}
        if is_agent and type(content) is list:
            self._begin_response(collected, record["message"])
        thinks = False
        for block in content if type(content) is list else [text_part(content)]:
            kind = kind_of(block)
            if kind == "tool_result" and not is_agent:
                collected.say(user, as_text=False, **flags)
                self._read_result(collected, block)
            elif kind == "tool_use" and is_agent:
                self._read_call(collected, block)
            elif kind in THINKING and is_agent:
                collected.thinking.append(block)
                thinks = True
            elif (part := part_of(block)) is not None:
                collected.parts.append(part)
            else:
                collected.parts += shown_blocks(block)
        later = () if collected.parts and thinks else tuple(collected.thinking)
        if later:
            collected.thinking = []
            if type(response := record["message"].get("id")) is str:
                self._thinking[response] = later
        collected.say(
            "agent" if is_agent else user, as_text=is_agent or type(content) is str, **flags
        )

    def _read_call(self, collected: RecordEvents, block: Fields) -> None:
        """Add a call, and the result that was written before it, if there is one."""
        call = collected.call(block.get("name"), block.get("input"), block.get("id"))
        call_id = call.call_id
        if not call.shown or call_id is None:
            return
        self._parallel.call(call)
        if checksum(call_id) in self._early_before:
            self.past.needs_all()
        if (result := self._early.pop(call_id, None)) is None:
            return
        self._parallel.answer(call_id)
        with collected.placed(result.id):
            collected.answer(
                call_id, result.content, is_error=result.is_error, timestamp=result.timestamp
            )
        self.report(RESULT_FIRST.format(call_id))

    def _read_result(self, collected: RecordEvents, block: Fields) -> None:
        """Add the result of a call. A result before its call is not shown until the call comes."""
        call_id = block.get("tool_use_id")
        failed = block.get("is_error") is True
        content = content_of(block.get("content"))
        is_early = (
            collected.shown
            and type(call_id) is str
            and self._switches.missing is not None
            and not self.calls.is_open(call_id)
        )
        # a View shows the result after its call, if the call comes
        fields = {"shown": False} if is_early else {}
        result = collected.answer(call_id, content, is_error=failed, **fields)
        if is_early and result.call_id is not None:
            self._early[result.call_id] = result
        elif collected.shown:
            self._parallel.answer(call_id)

    def _supply_results(self, collected: RecordEvents) -> None:
        """Supply results of the previous response's calls, if the source has results of only some
        of them. A model refuses these results without the results of all calls.
        """
        if self._parallel.lacks_result:
            self.supply_results(collected, self._parallel, NO_RESULT)
        self._parallel = NewestCalls()

    def _begin_response(self, collected: RecordEvents, message: Fields) -> None:
        """Begin a line of a response: with its id, and the thinking that waits for its next
        call.
        """
        response = message.get("id")
        if type(response) is str:
            if self.past.is_before_window(f"reply {response}"):
                self.past.needs_all()
            self.past.add(f"reply {response}")
            collected.thinking = [*self._thinking.pop(response, ())]
        collected.response = response if type(response) is str else _line_id(collected)
        if collected.shown and self._parallel.response not in (None, collected.response):
            self._supply_results(collected)

    def _tell(self, collected: RecordEvents, record: Fields) -> None:
        # the first event of a sub-agent also names the session that started the sub-agent
        kind = record["type"]
        uuid = record.get("uuid")
        is_awaited = self._awaited and type(uuid) is str and checksum(uuid) in self._awaited
        if kind == "summary" or is_awaited:
            self.past.needs_all()
        collected.meta = self._usage_in(
            record.get("message"), record.get("requestId"), record.get("costUSD")
        )
        title = self._titles.of(
            kind, uuid, record.get(TITLES.get(kind, "")), record.get("leafUuid")
        )
        if title is not None:
            collected.meta["title"] = title
        begins_sub_agent = self._begins and self._side and record.get("agentId")
        if begins_sub_agent and (session := text_or_none(record, "sessionId")):
            collected.meta["parent"] = f"{self.options.prefix}{session}"

    def _usage_in(self, message: Any, request: Any, cost_usd: Any) -> Fields:
        if type(message) is not dict or "usage" not in message:
            return usage_in(message, request)
        # most lines of a response repeat its usage, so the last usage is cached
        call_fields = message["usage"], message.get("model"), message.get("id"), request, cost_usd
        if call_fields != self._call_fields:
            self._call_fields = call_fields
            self._usage = usage_in(message, request, cost_in(cost_usd))
        return {**self._usage}

    def _condense(self, collected: RecordEvents, summary: str) -> None:
        boundary = self._boundary
        self._boundary = {}
        self._parallel = NewestCalls()
        segment = Kept.by(boundary)
        comes_last = segment.anchor is not None and segment.anchor == boundary.get("uuid")
        shown = self.shown.tags()
        names = segment.among([uuid for uuid, _ in shown])
        are_prompts = [is_prompt for uuid, is_prompt in shown if uuid in names]
        offset = None if comes_last else [*are_prompts, False].index(False)
        collected.condense(
            lambda known: known[0] in names, summary, metadata_of(boundary), offset=offset
        )


def _line_id(collected: RecordEvents) -> str | None:
    """Return the id of the present line, or None if it has none, or one that is no text."""
    line_id = collected.origin.id
    return line_id if type(line_id) is str else None


def usage_in(message: Any, request: Any = None, cost: float | None = None) -> Fields:
    """Return the usage and the id of a response as ``meta`` of an event. Only the last line of a
    response has the complete usage.

    The id consists of the message's id and its ``request`` id, because some servers use one id for
    many messages.
    """
    if type(message) is dict and message.get("model") == SYNTHETIC_MODEL:
        return {"model": SYNTHETIC_MODEL}
    if type(message) is not dict or "usage" not in message:
        return {}
    reply = message.get("id")
    if type(reply) is str and type(request) is str:
        reply = f"{reply} {request}"
    return usage_meta(message["usage"], model=message.get("model"), reply=reply, cost=cost)
