"""Sessions of Microsoft's Agent Framework in foldlog: a history provider.

    provider = FoldlogHistoryProvider("sqlite:///history.db", condense=True)
    agent = Agent(
        client,
        context_providers=[provider],
        require_per_service_call_history_persistence=True,
    )
    await agent.run("hello", session=AgentSession(session_id="7"))

A session is the conversation ``PREFIX/SESSION`` in the format ``agent-framework``. If a compaction
of the SDK leaves out messages, the View forgets them, but they stay in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from agent_framework import (
    EXCLUDED_KEY,
    GROUP_ANNOTATION_KEY,
    SUMMARIZED_BY_SUMMARY_ID_KEY,
    SUMMARY_OF_GROUP_IDS_KEY,
    AgentMiddleware,
    ChatMiddleware,
    FunctionMiddleware,
    FunctionTool,
    HistoryProvider,
    Message,
)
from msgspec.structs import replace

from foldlog import History
from foldlog.adapters._shared import (
    Approval,
    Attributes,
    OpenHistories,
    SentRecords,
    StoreOrUrl,
    chat_request,
    effect_of,
    from_plain,
    in_thread,
    quote_id,
    record_approvals,
    select_new_items,
    sent_whole,
    shown_records,
    to_its_end,
    to_plain,
    value_in,
)
from foldlog.eventstore import (
    Action,
    Annotation,
    ConversationErased,
    Event,
    Observation,
    Seen,
    VersionConflict,
    summary_id,
)
from foldlog.projections import View, well_formed
from foldlog.runtimes import Fields, change_of_prompt, place_of, usage_meta

_FORMAT = "agent-framework"
_RUN = "foldlog.run"
"""The key in ``state`` with which ``after_run`` passes a run to ``save_messages``."""
_RECORD = "message"
"""The key in a condensation's metadata for the SDK's summary message."""
_USAGE = {
    "input_tokens": "input_token_count",
    "cached_tokens": "cache_read_input_token_count",
    "cache_write_tokens": "cache_creation_input_token_count",
    "completion_tokens": "output_token_count",
    "reasoning_tokens": "reasoning_output_token_count",
    "total_tokens": "total_token_count",
    "cache_read_input_tokens": "anthropic.cache_read_input_tokens",
    "cache_creation_input_tokens": "anthropic.cache_creation_input_tokens",
}
"""Maps the names of usage in foldlog to the SDK's names."""
_BY_SDK = {"reason": "the SDK's compaction left these messages out"}
"""The metadata of a condensation that the SDK made."""
_APPROVAL = "function_approval_request"
_DECISION = "function_approval_response"
_ANSWERS = ("function_result", _DECISION)
"""The types of contents that answer a call."""


class _Ids(tuple[int, ...]):
    """The event ids of a loaded message. The ids are stored in the message's
    ``raw_representation``, which the SDK does not send to a model.
    """


class FoldlogHistoryProvider(OpenHistories, HistoryProvider):  # type: ignore[misc]
    """Stores the messages of sessions: ``Agent(context_providers=[provider])``.

        histories   the URL of a store, or open histories, sync or async
        condense    whether loading messages condenses first, if a condensation is due
        attributes  attributes of each new conversation, such as ``{"user": "u7"}``
        settings    settings of the SDK, such as ``load_messages``

    If ``histories`` is a URL, ``close`` or ``async with`` closes the store. Many tasks, processes
    and providers may use the same session.
    """

    def __init__(
        self,
        histories: StoreOrUrl,
        *,
        condense: bool = False,
        prefix: str = _FORMAT,
        source_id: str = "foldlog",
        attributes: Attributes = None,
        **settings: Any,
    ) -> None:
        OpenHistories.__init__(self, histories, attributes)
        HistoryProvider.__init__(self, source_id, **settings)
        self._condense = condense
        self._prefix = prefix

    def conversation(self, session_id: str | None) -> str:
        """Return the id of a session's conversation. Without a session, the session id is
        ``default``, as in the SDK.
        """
        return f"{self._prefix}/{quote_id(session_id or 'default')}"

    @in_thread
    def get_messages(
        self, /, session_id: str | None, *, state: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages that a model is shown, the oldest first. Condensed messages are
        replaced by a user message with the summary.

        Only the returned messages are read. Raises ``NoCondensationAvailable`` if a required
        condensation is impossible.
        """
        history = self._sync[self.conversation(session_id)]
        run = (state or {}).get(_RUN)
        try:
            whole = None if self._condense else self._unchanged_messages(history, run)
            if whole is not None:
                return whole
            prompt = SentRecords(history, condense=self._condense)
            self._asked[history.id] = prompt.view.version
            shown = prompt.view if run is None else _before(run, prompt, history)
        except ConversationErased:
            return []
        return _messages(prompt.view, prompt.records(shown, _FORMAT))

    def _unchanged_messages(self, history: History, run: Any) -> list[Message] | None:
        """Return the stored messages if the run can use them unchanged and in their order;
        otherwise return None.
        """
        whole = sent_whole(history, _FORMAT)
        if whole is None:
            return None
        stored = map(value_in, whole.texts())
        records = stored if run is None else _records_in_order(stored, run)
        spans = (range(span.start, span.stop) for span in whole.spans)
        messages = [_message(record, ids) for record, ids in zip(records, spans, strict=False)]
        if len(messages) < len(whole.spans):
            return None
        self._asked[history.id] = whole.version
        return messages

    @to_its_end
    def save_messages(
        self,
        /,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Append all messages, or none if an error is raised. The messages are on disk when the
        method returns.

        Messages that repeat the end of the session are left out, as in the SDK's own providers.
        Messages that a compaction of the SDK excluded are appended and forgotten.
        """
        run = (state or {}).get(_RUN)
        self._save(session_id, [message.to_dict() for message in messages], run)

    def _save(
        self, session_id: str | None, records: Iterable[Any], run: Any, *, is_copy: bool = False
    ) -> int:
        """Append the records that the session does not have yet, and return their number. With
        ``is_copy``, the records begin with all messages of the session.
        """
        conversation = self.conversation(session_id)
        records = [to_plain(record) for record in records]
        history = self._sync[conversation]
        beside = self._sent_beside.pop(conversation, None)
        if not records:
            return 0
        history._asked_at = self._asked.pop(conversation, None)
        history._sent_beside = beside
        while True:
            with suppress(VersionConflict):  # another writer appended
                append = partial(_append_new, records=records, run=run, is_copy=is_copy)
                _, count = self._append_or_begin(history, append)
                return count

    async def before_run(self, *, agent: Any, session: Any, context: Any, state: Fields) -> None:
        """Load the messages of a session. The open calls of a killed run are left out, because
        models refuse calls without results.
        """
        history = self._sync[self.conversation(context.session_id)]
        seen = await self.histories.pool.run(partial(_seen_in, history), finish=False)
        await super().before_run(
            agent=agent, session=session, context=context, state={**state, _RUN: context}
        )
        loaded = map(_ids_of, context.context_messages.get(self.source_id, ()))
        context.metadata[self.source_id] = list(loaded), seen

    async def after_run(self, *, agent: Any, session: Any, context: Any, state: Fields) -> None:
        """Save the messages and the usage of a run, and forget the messages that a compaction left
        out.
        """
        loaded = context.context_messages.get(self.source_id, ())
        ids, seen = context.metadata.pop(self.source_id, ((), None))
        run = _Run(loaded, ids, seen, context.response)
        await super().after_run(
            agent=agent, session=session, context=context, state={**state, _RUN: run}
        )

    @to_its_end
    def _record_approvals(self, session_id: str | None, messages: Sequence[Message]) -> None:
        approvals = [*_approvals_in(to_plain(message.to_dict()) for message in messages)]
        if approvals:
            record_approvals(self.histories.sync[self.conversation(session_id)], approvals)

    @property
    def effects(self) -> FunctionMiddleware:
        """The middleware for ``Agent(middleware=[…])``. With this middleware, an agent runs a call
        at most once if ``foldlog.effect`` marks the tool.
        """
        return _Effects(self)

    @property
    def approvals(self) -> AgentMiddleware:
        """The middleware for ``Agent(middleware=[…])`` that records who was asked to approve a call
        and who decided.
        """
        return _Approvals(self)

    @property
    def requests(self) -> ChatMiddleware:
        """The middleware for ``Agent(middleware=[…])`` that notes the tools and the instructions of
        each model call, which are recorded with its reply. Tools are noted if all of them are
        functions.
        """
        return _Requests(self)

    async def copy_from(
        self, other: HistoryProvider, session_id: str | None, *, state: Fields | None = None
    ) -> int:
        """Copy a session from another provider, such as a ``FileHistoryProvider``. Return the
        number of added messages.

        A second copy adds only messages that are new in ``other``. Raises ``ValueError`` if the
        session in ``other`` does not begin with the messages of this session, for example because
        this session was condensed.
        """
        copied = [
            message.to_dict() for message in await other.get_messages(session_id, state=state)
        ]
        stored = [message.to_dict() for message in await self.get_messages(session_id)]
        new = select_new_items(session_id, stored, copied, "messages")
        # ``save_messages`` would append the only message of a session again. All messages are
        # passed, because another copy may append some of the new ones before this one.
        save = partial(self._save, session_id, copied if new else (), None, is_copy=True)
        return await self.histories.pool.run(save, finish=True)


class _Approvals(AgentMiddleware):  # type: ignore[misc]
    """Records the approvals in the input and the output of a run."""

    def __init__(self, provider: FoldlogHistoryProvider) -> None:
        self._provider = provider

    async def process(self, context: Any, call_next: Any) -> None:
        session_id = None if context.session is None else context.session.session_id

        async def record(response: Any) -> Any:
            await self._provider._record_approvals(session_id, response.messages)
            return response

        await self._provider._record_approvals(session_id, context.messages)
        context.stream_result_hooks.append(record)
        await call_next()
        if not context.stream and context.result is not None:
            await record(context.result)


class _Requests(ChatMiddleware):  # type: ignore[misc]
    """Notes what a model is sent beside the messages."""

    def __init__(self, provider: FoldlogHistoryProvider) -> None:
        self._provider = provider

    async def process(self, context: Any, call_next: Any) -> None:
        options = context.options or {}
        functions = options.get("tools") or ()
        if not all(isinstance(function, FunctionTool) for function in functions):
            functions = ()
        tools = [
            (function.name, function.description, function.parameters()) for function in functions
        ]
        session_id = None if context.session is None else context.session.session_id
        conversation = self._provider.conversation(session_id)
        beside = chat_request(tools, options.get("instructions"))
        self._provider._sent_beside[conversation] = beside
        await call_next()


class _Effects(FunctionMiddleware):  # type: ignore[misc]
    """Sets the current tool call, which ``foldlog.effect`` reads."""

    def __init__(self, provider: FoldlogHistoryProvider) -> None:
        self._provider = provider

    async def process(self, context: Any, call_next: Any) -> None:
        session_id = None if context.session is None else context.session.session_id
        with effect_of(
            self._provider,
            self._provider.conversation(session_id),
            context.metadata["call_id"],
            context.function.name,
            to_plain(dict(context.arguments)),
        ):
            await call_next()


class _Run:
    """A finished run.

    ``seen``    what was read before the messages were loaded; None if the conversation did not
                exist
    ``sent``    the messages that a compaction of the SDK did not exclude
    ``loaded``  the event ids of each loaded message
    ``kept``    the event ids of each loaded message that the View must still show
    ``meta``    the usage of the run
    """

    def __init__(
        self,
        messages: Sequence[Message],
        loaded: Iterable[_Ids | None],
        seen: Seen | None,
        response: Any,
    ) -> None:
        self.seen = seen
        self.sent = [
            message for message in messages if not message.additional_properties.get(EXCLUDED_KEY)
        ]
        summaries = {message.message_id for message in self.sent}
        self.loaded = [ids for ids in loaded if ids is not None]
        self.kept = {ids for message in self.sent if (ids := _ids_of(message)) is not None}
        for message in messages:  # without its summary, a message would be lost
            summary = (message.additional_properties.get(GROUP_ANNOTATION_KEY) or {}).get(
                SUMMARIZED_BY_SUMMARY_ID_KEY
            )
            if (
                summary is not None
                and summary not in summaries
                and (ids := _ids_of(message)) is not None
            ):
                self.kept.add(ids)
        usage = getattr(response, "usage_details", None) or {}
        counts = {ours: usage.get(theirs) for ours, theirs in _USAGE.items()}
        self.meta = usage_meta(
            counts, model=getattr(getattr(response, "raw_representation", None), "model", None)
        )


def _seen_in(history: History) -> Seen | None:
    """Return what a history has now, or None if the conversation does not exist."""
    with suppress(ConversationErased):
        seen = history._seen()
        return seen if seen.key else None
    return None


def _append_new(history: History, records: list[Any], run: _Run | None, *, is_copy: bool) -> int:
    """Append the records that the View does not have yet, and the compactions of a run. Return the
    number of appended records. With ``is_copy``, the records begin with all messages of the View.
    """
    view = history.view()
    # Otherwise a summary of the run may quote a message that was redacted after it was loaded, or
    # the loaded messages belong to an erased conversation with the same id.
    loaded = None if run is None else run.seen
    is_current = loaded is None or loaded.is_unredacted_in(view.seen)
    recorder = history._recorder(_FORMAT, view.version)
    events = list[Event]()
    if run is not None and is_current:
        events += _condensations_of_run(run, view)
    recorder.skip(len(events))
    excluded = list[int]()
    replied = None
    if is_copy:
        shown = _messages(view, shown_records(view, _FORMAT, history))
        stored = [to_plain(message.to_dict()) for message in shown]
        new = select_new_items(history.id, stored, records, "messages")
    else:
        new = records[_count_repeated(history, view, records) :]
    for record in new:
        first = len(events)
        if not is_current:  # the summary that replaces the message is not stored
            record["additional_properties"].pop(EXCLUDED_KEY, None)
        events += recorder.decode(record)
        if record["additional_properties"].get(EXCLUDED_KEY):
            excluded += range(view.version + first, view.version + len(events))
        if record["role"] == "assistant":
            replied = len(events) - 1
    if run is not None and run.meta and replied is not None:
        events[replied] = replace(events[replied], meta=run.meta)
    change = change_of_prompt(excluded, (), "compaction", metadata=_BY_SDK)
    if change is not None:
        events.append(change)
    if events:
        history._append_recorded(events, recorder, view.seen)
    return len(new)


def _approvals_in(records: Iterable[Any]) -> Iterator[Approval]:
    """Yield what messages ask and decide about calls. An answer is its message's author's."""
    for record in records:
        for content in record["contents"]:
            call = content.get("function_call") or {}
            if content["type"] == _APPROVAL:
                shown = {"tool": call.get("name"), "arguments": call.get("arguments")}
                yield Approval.asked(call.get("call_id"), shown)
            elif content["type"] == _DECISION:
                approved = content.get("approved") is True
                yield Approval.decided(call.get("call_id"), approved, by=record.get("author_name"))


def _condensations_of_run(run: _Run, view: View) -> Iterator[Event]:
    """Yield a condensation for each compaction of the SDK during a run. It forgets the loaded
    messages before a sent message that were not sent, and has the summary that the SDK put there.
    """
    shown = [event.id for event in view]
    loaded = iter(run.loaded)
    number = view.version
    summaries: list[Message] = []
    for message in [*run.sent, None]:
        ids = None if message is None else _ids_of(message)
        if message is not None and ids is None:
            annotation = message.additional_properties.get(GROUP_ANNOTATION_KEY) or {}
            if SUMMARY_OF_GROUP_IDS_KEY in annotation:
                summaries.append(message)
            continue
        there = set(shown)
        removed_ids = list[int]()
        for message_ids in loaded:
            if message_ids == ids:
                break
            if message_ids not in run.kept:
                removed_ids += (id for id in message_ids if id in there)
        places = [shown.index(id) for id in removed_ids or ids or () if id in there]
        offset = min(places, default=len(shown))
        for summary in summaries or ([None] if removed_ids else []):
            after: list[int | str] = [id for id in shown if id not in removed_ids]
            metadata = dict[str, Any](_BY_SDK)
            if summary is not None:
                metadata[_RECORD] = to_plain(summary.to_dict())
                after.insert(offset, summary.text)
            change = change_of_prompt(shown, after, "compaction", metadata=metadata)
            if change is not None:
                yield change
            shown = [summary_id(number) if isinstance(member, str) else member for member in after]
            if summary is not None:
                offset += 1
            number += 1
            removed_ids = []
        summaries = []


def _count_repeated(history: History, view: View, records: list[Any]) -> int:
    """Return the number of records at the beginning of ``records`` that the View already has. The
    SDK may save the same messages again, and repeated messages must not be appended.
    """
    start = len(view)
    wanted = len(records) + 1
    while start and wanted:
        start -= 1
        if place_of(view[start]) == 0:  # a message begins here
            wanted -= 1
    newest = _messages(view, shown_records(view[start:], _FORMAT, history))
    there = [_identity(to_plain(message.to_dict())) for message in newest]
    here = [_identity(record) for record in records]
    if not there:
        return 0
    # A user may send the same input twice, so a repeated input alone is new.
    ends_with_input = there[-1][:2] == ("", "user")
    for skipped in range(len(here) - len(there) + 1):
        is_input_alone = skipped == 0 and len(there) == 1 and ends_with_input
        if here[skipped : skipped + len(there)] == there and not is_input_alone:
            return skipped + len(there)
    least = 2 if ends_with_input else 1
    for overlap in range(min(len(there), len(here)), least - 1, -1):
        if there[-overlap:] == here[:overlap]:
            return overlap
    return 0


def _identity(record: Any) -> tuple[str, ...]:
    """Return by what the SDK recognizes a message: its id, or else its role and its contents."""
    if record.get("message_id") is not None:
        return (str(record["message_id"]),)
    return "", record["role"], json.dumps(record["contents"], sort_keys=True)


def _before(context: Any, prompt: SentRecords, history: History) -> list[Event]:
    """Return the events that are sent before the input of a run.

    A call comes directly before its result. Calls that the input answers come last. Other open
    calls are left out, and so are the requests to approve them.
    """
    contents = [content for message in context.input_messages for content in message.contents]
    answered = {
        (content.function_call or content).call_id
        for content in contents
        if content.type in _ANSWERS
    }
    waiting = answered - {
        content.call_id for content in contents if content.type == "function_call"
    }
    shown = {event.id: event for event in prompt.view}
    called = [shown.pop(event.id, event) for event in _messages_with_calls(history, waiting)]
    whole = well_formed(prompt.view.with_events(shown.values()) if called else prompt.view)
    last = {
        _head_of(whole[at]): calls.members[-1]
        for calls in whole.units.parallel_calls
        for at in calls.members
    }
    # The events of a message with calls come where the last of its parallel calls is.
    before = sorted(enumerate(whole), key=lambda item: last.get(_head_of(item[1]), item[0]))
    sent = {None, *answered}
    return [
        event
        for event in [*(event for _, event in before), *called]
        if _call_to_approve(event) in sent
    ]


def _messages_with_calls(history: History, waiting: set[str]) -> list[Event]:
    """Return the events of the messages that contain the calls in ``waiting``. The log is read
    backwards until all these calls are found.
    """
    called = list[Event]()
    message = list[Event]()
    results = dict[str | None, Event]()
    if waiting:
        for event in history.events(reverse=True):
            message.insert(0, event)
            if _head_of(event) == event.id:
                calls = [part.call_id for part in message if isinstance(part, Action)]
                there = {call: results.pop(call) for call in calls if call in results}
                if waiting.intersection(calls) - there.keys():
                    waiting = waiting.difference(calls)
                    called = [*message, *there.values(), *called]
                results |= {part.call_id: part for part in message if isinstance(part, Observation)}
                message = []
            if not waiting:
                break
    return called


def _head_of(event: Event) -> int:
    """Return the id of the first event of an event's record."""
    return event.id - place_of(event)


def _call_to_approve(event: Event) -> str | None:
    """If an event asks the user to approve a call, return the id of the call. Otherwise return
    None.
    """
    if isinstance(event, Annotation) and event.name == _APPROVAL:
        request = event.data or {}
    else:
        request = {}
    call_id: str | None = request.get("function_call", {}).get("call_id")
    return call_id


def _ids_of(message: Message) -> _Ids | None:
    if isinstance(message.raw_representation, _Ids):
        return message.raw_representation
    return None


def _messages(view: View, shown: Iterable[tuple[Sequence[Event], Sequence[Any]]]) -> list[Message]:
    condensations = {
        condensation.id: condensation.metadata.get(_RECORD) for condensation in view.condensations
    }
    messages: list[Message] = []
    for events, records in shown:
        record = condensations.get(getattr(events[0], "summary_of", None) or 0)
        ids = [event.id for event in events]
        # A redacted message may have no record.
        there = records if record is None else [record]
        messages += (_message(from_plain(record), ids) for record in there)
    return messages


def _message(record: Any, ids: Iterable[int]) -> Message:
    message = Message.from_dict(record)
    message.raw_representation = _Ids(ids)
    return message


def _records_in_order(records: Iterable[Any], run: Any) -> Iterator[Any]:
    """Yield records, and stop before the first call that waits for an approval, or whose result
    does not directly follow.

    The yielded messages can be sent unchanged. If the input of the run answers a call, nothing is
    yielded.
    """
    if any(
        content.type in _ANSWERS for message in run.input_messages for content in message.contents
    ):
        return
    waiting = set[Any]()
    held = list[Any]()
    for record in records:
        held.append(record)
        results = {
            content["call_id"]
            for content in record["contents"]
            if content["type"] == "function_result"
        }
        if (waiting and not results) or any(
            content["type"] == _APPROVAL for content in record["contents"]
        ):
            return
        waiting -= results
        waiting.update(
            content["call_id"]
            for content in record["contents"]
            if content["type"] == "function_call"
        )
        if not waiting:
            yield from held
            held.clear()
