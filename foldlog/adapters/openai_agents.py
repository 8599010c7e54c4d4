"""Store sessions of the OpenAI Agents SDK in foldlog, and condense during a run.

    session = FoldlogSession("user-7", "sqlite:///history.db", condense=True)
    await Runner.run(agent, "hello", **session.run_options())

A session is a conversation in the format ``openai-responses``. If the SDK takes items back, foldlog
retracts them, and they stay in the log. The SDK reads a session only at the start of a run. So
condensing during a run needs the filter ``input_filter``, and recording usage needs ``hooks``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeGuard

from agents import (
    Agent,
    FunctionTool,
    Model,
    ModelProvider,
    ModelResponse,
    MultiProvider,
    RunConfig,
    RunHooks,
    RunResult,
    RunResultStreaming,
    RunState,
    Session,
    SessionSettings,
    ToolApprovalItem,
    TResponseInputItem,
    Usage,
)
from agents.run import CallModelData, ModelInputData

from foldlog import History
from foldlog.adapters._shared import (
    CLEARED,
    Approval,
    Attributes,
    OpenHistories,
    SentRecords,
    StoreOrUrl,
    effect_of,
    empty_session,
    in_thread,
    quote_id,
    record_approvals,
    sent_whole,
    shown_records,
    to_its_end,
)
from foldlog.adapters._streams import ReplyStreams
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationSummary,
    ConversationErased,
    Event,
    Recorded,
    Redaction,
    Retraction,
    Seen,
    VersionConflict,
)
from foldlog.projections import well_formed
from foldlog.projections.call_states import MARK
from foldlog.projections.messages.requests import SentBeside
from foldlog.runtimes import (
    COMPACTED_BY_PROVIDER,
    Fields,
    change_of_prompt,
    staying,
    taken_back,
    usage_meta,
    within,
)

_FORMAT = "openai-responses"
_POPPED = "the runtime took the newest item back"


class FoldlogSession(OpenHistories):
    """A session for the SDK: ``Runner.run(..., session=session)``.

        session_id        the SDK's id of the session; the conversation's id is ``PREFIX/SESSION``,
                          quoted as in a URL
        histories         the URL of a store, or open histories, sync or async
        prefix            the beginning of the conversation's id, by default ``openai-agents``
        condense          whether ``get_items`` and ``input_filter`` condense first, if a
                          condensation is due
        clear             what ``clear_session`` does: ``"retract"`` keeps all items in the log,
                          ``"erase"`` removes their bytes
        session_settings  settings of the SDK, such as ``{"limit": 50}``
        attributes        attributes of a new conversation, such as ``{"user": "u7", "title":
                          "Refunds"}``
        stream            whether the replies of ``with_streams`` are stored while the model writes
                          them. ``get_items`` then appends what a killed worker left of a reply:
                          only a worker should pass ``stream=True``

    If ``histories`` is a URL, ``close`` or ``async with`` closes the store. Many tasks, processes
    and session objects may use the same conversation.
    """

    def __init__(
        self,
        session_id: str,
        histories: StoreOrUrl,
        *,
        condense: bool = False,
        clear: Literal["retract", "erase"] = "retract",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        prefix: str = "openai-agents",
        attributes: Attributes = None,
        stream: bool = False,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings = _settings(session_settings)
        super().__init__(histories, attributes)
        self.history = self.histories[f"{prefix}/{quote_id(session_id)}"]
        self._condense = condense
        self._clear = clear
        self._stream = stream
        self._streams = ReplyStreams(self._sync)
        self._first_seen: Seen | None = None
        """What this object first read of the session. The SDK may compact items that it has held
        since then, so a compaction is not stored if an item was redacted in the meantime.
        """
        self._is_outdated = False
        """Whether this object has erased a session in which an item was redacted after this object
        first read the session. The SDK may hold the redacted text as long as this object exists.
        """
        self._cleared: _Cleared | None = None
        """The last clearing of the session by this object, until items are added."""

    @in_thread
    def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items that a model is shown, the oldest first. With ``limit``, return only the
        newest items. As in SQLite, a negative limit means no limit.

        With ``condense``, a condensation that is due is made first. Condensed items are replaced by
        a user message with the summary. Only the returned items are read.
        """
        if limit is None:
            limit = _settings(self.session_settings).limit
        if limit is not None and limit < 0:
            limit = None
        if limit == 0:
            return []
        if self._stream:
            self._take_up()
        history = self.history
        for _ in range(2):
            with suppress(ConversationErased):
                seen = history.sync._seen()
                items = self._items_of(history.sync, limit)
                self.history = history
                self._keep_first(seen)
                return items if limit is None else items[-limit:]
            history = self.histories[history.id]  # another session with this id may have begun
        return []

    def _take_up(self) -> None:
        """Append what a killed worker left of a reply."""
        with suppress(ConversationErased):
            text = self._streams.take_up(self.history.id)
            if text:
                item = {"role": "assistant", "content": text}
                with self._streams.ending(self.history.sync):
                    _append_items(self.history.sync, [item], None, False)

    def _keep_first(self, seen: Seen) -> None:
        """Remember what this object read first. If another conversation has the id now, remember
        what was read of this one.
        """
        if self._first_seen is None or self._first_seen.key != seen.key:
            self._first_seen = seen if seen.key else None

    def _items_of(self, history: History, limit: int | None) -> list[Any]:
        """Return the items that a model is shown, at least the newest ``limit`` if there are so
        many.
        """
        whole = None if self._condense else sent_whole(history, _FORMAT)
        if whole is not None:
            return list(whole.records(limit))
        prompt = SentRecords(history, condense=self._condense)
        return _items(prompt, prompt.view if limit is None else prompt.view.tail(limit))

    @to_its_end
    def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append all items, or none if an error is raised. The items are on disk when the method
        returns.

        A compaction of the SDK calls ``clear_session``, and then adds some of the items again.
        Foldlog stores the compaction as a condensation that forgets the items which were not added
        again. If an item was redacted after this object first read the session, foldlog stores no
        compaction, and the session has all its items again: compact with a new object. If a
        compaction or a rewind of the SDK fails, the SDK adds the items again that it took out a
        moment before. If you redacted an item during this compaction or rewind, redact it again
        after the error.

        Raises ``ConversationErased`` if other code erased the session after this object used it. If
        the session was erased earlier, a new session begins.
        """
        if not items:
            return
        cleared = self._cleared
        if cleared is not None and cleared.items is not None and _is_compaction(items):
            items = cleared.items
        self._append_in_order(
            partial(
                _append_items,
                items=items,
                first_seen=self._first_seen,
                was_cleared=cleared is not None,
            )
        )
        self._cleared = None
        if self._first_seen is None:
            with suppress(ConversationErased):  # The items were erased after they were added.
                self._first_seen = self.history.sync._seen()

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item back and return it. Return None if there is no item, or if the item
        is a summary. Items that were condensed stay condensed.

        If an effect of a tool was taken back, foldlog adds a message that names the effect. This
        message is not taken back.
        """
        try:
            return await self._pop_newest()
        except ConversationErased:
            if await self.get_items(1):
                raise  # this object has not read the items of the new session with this id
            return None

    @to_its_end
    def _pop_newest(self) -> TResponseInputItem | None:
        history = self.history.sync
        while True:
            view = history.view()
            newest_first = reversed(view.events)
            notices = list[int]()
            newest = next(newest_first, None)
            while newest is not None and _names_effects(newest):
                notices.insert(0, newest.id)
                newest = next(newest_first, None)
            if newest is None or isinstance(newest, CondensationSummary):
                return None
            popped = _items_in(history, [newest])
            # A retraction would undo a condensation that is newer than the item.
            condensed_at = max((condensation.id for condensation in view.condensations), default=-1)
            # A new message names the effects of the former messages, too.
            removed = [newest.id, *notices]
            change = change_of_prompt(
                removed, [], condensed_at=condensed_at, metadata={"reason": _POPPED}
            )
            notice = taken_back(history, newest.id)
            events: list[Event] = [event for event in (change, notice) if event is not None]
            with suppress(VersionConflict):  # another writer appended or redacted an event
                history._append_seen(events, view.seen)
                return popped[-1] if popped else None

    @to_its_end
    def clear_session(self) -> None:
        """Retract or erase all items, depending on the argument ``clear`` of the class."""
        if self._clear == "erase":
            self._cleared = _Cleared(self._items_if_outdated())
            self._first_seen = None
            empty_session(self._sync, self.history.id, self._clear)
            self.history = self.histories[self.history.id]
        else:
            empty_session(self._sync, self.history.id, self._clear)
            self._cleared = _Cleared()

    def _items_if_outdated(self) -> list[Any] | None:
        """Return the items of the session, if an item was redacted after this object first read the
        session. Otherwise return None.
        """
        history = self.history.sync
        with suppress(ConversationErased):
            if _was_redacted_since(self._first_seen, history._seen()):
                self._is_outdated = True
            if self._is_outdated:
                return _items_in(history, history.view())
        return None

    def with_effects(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of an agent for runs with this session. In the copy, a tool that is marked
        with ``foldlog.effect`` runs at most once for each call.
        """
        tools = [
            self._around(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools
        ]
        return agent.clone(tools=tools)

    def with_streams(
        self, agent: Agent[Any], model_provider: ModelProvider | None = None
    ) -> Agent[Any]:
        """Return a copy of an agent for streamed runs with this session, which has ``stream``. Each
        piece of a reply is stored before the program gets it. ``model_provider`` finds a model by
        its name, by default as the SDK does. A model in the ``RunConfig`` is used as it is.
        """
        model = agent.model
        if not isinstance(model, Model):
            model = (model_provider or MultiProvider()).get_model(model)
        return agent.clone(model=_StreamedModel(model, self))

    def _around(self, tool: FunctionTool) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> Any:
            with effect_of(self, self.history.id, context.tool_call_id, tool.name, arguments):
                return await tool.on_invoke_tool(context, arguments)

        return replace(tool, on_invoke_tool=invoke)

    async def ask_approvals(self, result: RunResult | RunResultStreaming, *, to: str) -> None:
        """Record that a person was asked to approve the calls at which a run stopped."""
        await self._record(
            Approval.asked(
                item.call_id, {"tool": item.tool_name, "arguments": item.arguments}, to=to
            )
            for item in result.interruptions
        )

    async def decide(
        self,
        state: RunState[Any],
        item: ToolApprovalItem,
        approved: bool,
        *,
        by: str,
        reason: str = "",
    ) -> None:
        """Record that a person approved or refused a call at which a run stopped. Then approve or
        reject the call in ``state``, with which ``Runner.run`` goes on.

        Args:
            state: The state of the run that stopped.
            item: The interruption, from ``result.interruptions``.
            approved: Whether the person approved the call.
            by: The person who decided.
            reason: Why. For a refused call, the model reads the reason.

        Raises:
            StoreUnavailable: The decision could not be recorded, and ``state`` is unchanged. Also
                raises the other errors of ``History.append``.

        Durability: the decision is on disk when the method returns.

        Cost: appending an event.
        """
        await self._record([Approval.decided(item.call_id, approved, by=by, reason=reason)])
        if approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=reason or None)

    async def _record(self, approvals: Iterable[Approval]) -> None:
        work = partial(record_approvals, self.history.sync, approvals)
        await self.histories.pool.run(work, finish=True)

    async def copy_from(self, other: Session) -> int:
        """Copy the items of another session, such as a ``SQLiteSession``. Return the number of
        added items.

        A second copy adds only items that are new in ``other``, also if both copies run at the same
        time. Raises ``ValueError`` if ``other`` does not begin with the items of this session, for
        example after a condensation. If the settings of ``other`` have a ``limit``, it returns only
        its newest items, so open it without a limit.
        """
        return await self._append_copied(await other.get_items())

    @to_its_end
    def _append_copied(self, items: list[Any]) -> int:
        if self._stream:
            self._take_up()
        _, count = self._append_new_items(
            self.history.id, items, "items", _FORMAT, _unchanged, _unchanged
        )
        if count:
            self.history = self.histories[self.history.id]
            self._cleared = None
        return count

    async def input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Replace condensed items in the input of a model call with their summary. Set this method
        as ``call_model_input_filter`` of ``RunConfig``.

        New items of the run stay at the end. If the input does not contain the session's newest
        item, it is returned unchanged.
        """
        model_data = data.model_data
        shown = await self.histories.pool.run(
            partial(self._condensed_input, model_data.input), finish=False
        )
        if shown is None:
            return model_data
        return ModelInputData(input=shown, instructions=model_data.instructions)

    def _condensed_input(self, input_items: Sequence[Any]) -> list[Any] | None:
        """Return the items that are sent to a model, or None if ``input_items`` is sent
        unchanged.
        """
        asked_at = self.history.sync._asked_at
        prompt = SentRecords(self.history.sync, condense=self._condense)
        if prompt.is_all:
            return None
        for event in reversed(prompt.log):
            if newest := _items(prompt, [event]):
                forms = (
                    newest,
                    _items(prompt, [shown for shown in prompt.view if shown.id == event.id]),
                )
                for rest in (_items_after(input_items, form[-1]) for form in forms if form):
                    if rest is not None:
                        return [*_items(prompt, well_formed(prompt.view)), *rest]
                break
        self.history.sync._asked_at = asked_at
        return None

    def run_options(self, config: RunConfig | None = None) -> Fields:
        """Return arguments for ``Runner.run``: this session, its filter and its hooks.

            await Runner.run(agent, "hello", **session.run_options())

        ``config`` contains the other settings of the run. Raises ``ValueError`` if ``config`` has
        its own ``call_model_input_filter``. If you have a filter of your own, call ``input_filter``
        in it, and pass the session and ``config`` to ``Runner.run`` yourself.
        """
        settings = config or RunConfig()
        if settings.call_model_input_filter is not None:
            raise ValueError(
                "the config already has a call_model_input_filter; call session.input_filter in"
                " this filter, and pass the session and the config to Runner.run"
            )
        return {
            "session": self,
            "run_config": replace(settings, call_model_input_filter=self.input_filter),
            "hooks": self.hooks,
        }

    @property
    def hooks(self) -> RunHooks[Any]:
        """Hooks that record the usage and the request of every model call. Pass the hooks to the
        run: ``Runner.run(..., hooks=session.hooks)``.
        """
        return _Hooks(self)

    @to_its_end
    def note_request(self, agent: Agent[Any], instructions: str | None) -> None:
        """Note the tools and the instructions of a model call, which are recorded with its reply.

        If you have hooks of your own, call this method in ``on_llm_start``. Tools are noted if all
        of them are functions, and no others come from handoffs or MCP servers.
        """
        tools = [_schema(tool) for tool in agent.tools if isinstance(tool, FunctionTool)]
        if len(tools) < len(agent.tools) or agent.handoffs or agent.mcp_servers:
            tools = []
        parameters = {"instructions": instructions} if instructions else {}
        self._note_request(self.history.sync, SentBeside("responses", tools, parameters))

    @to_its_end
    def record_usage(self, agent: Agent[Any], response: ModelResponse) -> None:
        """Record the usage of a model's response. The usage is on disk when the method returns.

        If you have hooks of your own, call this method in ``on_llm_end``. ``foldlog stats`` counts
        the usage, and no View shows it. Raises the errors of ``add_items``.
        """
        meta = usage_meta(_reported(response.usage), model=_model_name(agent.model))
        self._append_usage(meta)

    @to_its_end
    def _record_usage_below(self, agent: Agent[Any], usage: Usage) -> None:
        """Record the sum of the calls of agents that are tools of ``agent``. Its cost is unknown if
        their models differ.
        """
        models = {_model_name(agent_below.model) for agent_below in _agents_below(agent)}
        model = models.pop() if len(models) == 1 else None
        self._append_usage(usage_meta(_reported(usage), model=model, calls=usage.requests))

    def _append_usage(self, meta: Fields) -> None:
        event = Annotation(name="usage", meta=meta)
        self._append_in_order(lambda history: history.append(event))

    def _append_in_order(self, append: Callable[[History], tuple[Recorded, ...]]) -> None:
        """Append to the session. If no other writer has appended since the View was sent to a
        model, the next reply still answers this View, also after the appended events.
        """

        def append_to_run(history: History) -> None:
            asked_at = history._asked_at
            recorded = append(history)
            # A model is shown only the events of its own run.
            if asked_at is not None and recorded:
                if recorded[0].id == asked_at:
                    history._asked_at = recorded[-1].id + 1
                else:
                    history._asked_at = asked_at

        with self._streams.ending(self.history.sync):
            history, _ = self._append_or_begin(self.history.sync, append_to_run)
        if history is not self.history.sync:
            self.history = self.histories[self.history.id]


class _StreamedModel(Model):  # type: ignore[misc]
    """Stores each piece of a reply before it passes the piece on."""

    def __init__(self, model: Model, session: FoldlogSession) -> None:
        self._model = model
        self._session = session

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        return await self._model.get_response(*arguments, **options)

    async def stream_response(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        session = self._session
        streams = session._streams
        conversation = session.history.id
        run = session.histories.pool.run
        await run(partial(streams.drop, conversation), finish=True)  # one that the SDK discarded
        try:
            async for event in self._model.stream_response(*arguments, **options):
                if session._stream and _is_piece(event):
                    await run(partial(streams.feed, conversation, [event]), finish=True)
                yield event
        except BaseException:
            streams.leave(conversation)
            raise

    def get_retry_advice(self, request: Any) -> Any:
        return self._model.get_retry_advice(request)

    async def close(self) -> None:
        await self._model.close()


def _is_piece(event: Any) -> bool:
    """Return whether an event of a streamed response has a piece of the reply."""
    kind = str(getattr(event, "type", ""))
    return kind.startswith("response.") and kind.endswith((".delta", ".added", ".done"))


class _Cleared(NamedTuple):
    """A clearing of a session. If an item of an erased session was redacted after it was read,
    ``items`` are the items before the erasure, as redacted. They are added in place of a compaction
    of the SDK, which may repeat the redacted text.
    """

    items: list[Any] | None = None


def _was_redacted_since(first_seen: Seen | None, now: Seen) -> bool:
    """Return whether an event was redacted after ``first_seen`` was read."""
    return first_seen is not None and not first_seen.is_unredacted_in(now)


def _append_items(
    history: History,
    items: Sequence[Any],
    first_seen: Seen | None,
    was_cleared: bool,
) -> tuple[Recorded, ...]:
    """Append items, or store them as a compaction of the SDK: see ``_compact``."""
    while True:
        with suppress(VersionConflict):  # another writer appended or redacted an event
            recorded = _compact(history, items, first_seen, was_cleared)
            if recorded is None:
                return history.append_records(items, format=_FORMAT)
            return recorded


def _compact(
    history: History,
    items: Sequence[Any],
    first_seen: Seen | None,
    was_cleared: bool,
) -> tuple[Recorded, ...] | None:
    """Store a compaction of the SDK as a condensation. Return None, and append nothing, if
    ``items`` are not such a compaction.

    To compact a session, the SDK clears the session and then adds ``items``. So restore the View
    that the session had before it was cleared, and forget the events of this View that are not in
    ``items``. If an event was redacted after the SDK had read the items, ``items`` may have its
    content, so only restore the View.
    """
    if not _is_compaction(items):
        return None
    seen = history._seen()
    is_redacted = _was_redacted_since(first_seen, seen)
    newest = history.events(0, seen.version, reverse=True)
    cleared = next((event for event in newest if not isinstance(event, Redaction)), None)
    if not _is_clearing(cleared):
        # Another writer appended after the session was cleared.
        return _restore(history, seen) if is_redacted and was_cleared else None
    restored = Retraction(version=cleared.id, reason="the session was compacted, not cleared")
    if is_redacted:
        return history.append(restored, expected_version=seen)
    before = history.at(cleared.id)
    shown = [
        (events, records[0])
        for events, records in shown_records(before, _FORMAT, history)
        if records
    ]
    places = staying([item for _, item in shown], items)
    stay = {event.id for place in places for event in shown[place][0]}
    # The compaction after this change forgets all events except the user's messages. So this change
    # must only forget user's messages.
    after = [
        event.id
        for event in before
        if event.id in stay or getattr(event, "source", "user") != "user"
    ]
    reason = {"reason": COMPACTED_BY_PROVIDER}
    change = change_of_prompt([event.id for event in before], after, "compaction", metadata=reason)
    events: list[Event] = [restored, *([] if change is None else [change])]
    recorder = history._recorder(_FORMAT, seen.version)
    recorder.skip(len(events))
    events += recorder.decode_all(items[len(places) :])
    return history._append_recorded(events, recorder, seen)


def _is_compaction(items: Iterable[Any]) -> bool:
    return any(isinstance(item, dict) and item.get("type") == "compaction" for item in items)


def _is_clearing(event: Event | None) -> TypeGuard[Retraction]:
    return isinstance(event, Retraction) and event.reason == CLEARED


def _restore(history: History, seen: Seen) -> tuple[Recorded, ...] | None:
    """Append the items again that the session had before it was cleared, as they are now. Return
    None if the session was erased, so that its items are gone.

    A retraction would also restore them, but would hide what other writers appended since.
    """
    cleared = next(filter(_is_clearing, history.events(0, seen.version, reverse=True)), None)
    if cleared is None:
        return None
    items = _items_in(history, history.at(cleared.id))
    recorder = history._recorder(_FORMAT, seen.version)
    return history._append_recorded(recorder.decode_all(items), recorder, seen)


def _names_effects(event: Event) -> bool:
    """Return whether an event is the message that ``taken_back`` makes."""
    return within(event.meta, MARK, "taken_back") is not None


def _items_in(history: History, shown: Iterable[Event]) -> list[Any]:
    """Return the items of events of the log."""
    return [item for _, records in shown_records(shown, _FORMAT, history) for item in records]


class _Hooks(RunHooks[Any]):  # type: ignore[misc]
    """Records the calls of a run. An agent that is a tool of another agent has no hooks. The SDK
    adds its usage to the usage of the run, and what no hook recorded is the usage of such agents.
    """

    def __init__(self, session: FoldlogSession) -> None:
        self._session = session
        self._runs = dict[int, tuple[Usage, Usage]]()
        """Maps the identity of a run's usage to the usage, and to the part that is recorded."""

    async def on_llm_start(
        self, context: Any, agent: Agent[Any], system_prompt: str | None, input_items: Any
    ) -> None:
        await self._record_below(context, agent)
        await self._session.note_request(agent, system_prompt)

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        _, recorded = self._usage_of(context)
        recorded.add(response.usage)
        await self._session.record_usage(agent, response)

    async def on_tool_end(self, context: Any, agent: Agent[Any], tool: Any, result: Any) -> None:
        await self._record_below(context, agent)

    async def on_agent_end(self, context: Any, agent: Agent[Any], output: Any) -> None:
        await self._record_below(context, agent)
        self._runs.pop(id(context.usage), None)

    def _usage_of(self, context: Any) -> tuple[Usage, Usage]:
        """Return the usage of a run, and the part of it that is recorded. What the usage had before
        the first call of a hook counts as recorded.
        """
        usage = context.usage
        return self._runs.setdefault(id(usage), (usage, deepcopy(usage)))

    async def _record_below(self, context: Any, agent: Agent[Any]) -> None:
        usage, recorded = self._usage_of(context)
        added = _difference(usage, recorded)
        if added.requests > 0:
            recorded.add(added)
            await self._session._record_usage_below(agent, added)


def _difference(usage: Usage, recorded: Usage) -> Usage:
    """Return the usage that is not recorded."""
    cached, cached_before = (side.input_tokens_details.cached_tokens for side in (usage, recorded))
    thought, thought_before = (
        side.output_tokens_details.reasoning_tokens for side in (usage, recorded)
    )
    return Usage(
        requests=usage.requests - recorded.requests,
        input_tokens=usage.input_tokens - recorded.input_tokens,
        output_tokens=usage.output_tokens - recorded.output_tokens,
        total_tokens=usage.total_tokens - recorded.total_tokens,
        input_tokens_details=usage.input_tokens_details.model_copy(
            update={"cached_tokens": cached - cached_before}
        ),
        output_tokens_details=usage.output_tokens_details.model_copy(
            update={"reasoning_tokens": thought - thought_before}
        ),
    )


def _reported(usage: Usage) -> Fields:
    """Return usage in the form in which OpenAI's server reports it."""
    reported: Fields = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
    }
    for name in ("input_tokens_details", "output_tokens_details"):
        reported[name] = getattr(getattr(usage, name, None), "__dict__", {})
    return reported


def _agents_below(agent: Agent[Any]) -> Iterator[Agent[Any]]:
    """Yield the agents that are tools of an agent, as far as the SDK tells."""
    seen = {id(agent)}
    agents = [agent]
    for above in agents:  # the list grows
        below = [getattr(tool, "_agent_instance", None) for tool in above.tools]
        for child in below:
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                agents.append(child)
                yield child


def _schema(tool: FunctionTool) -> Fields:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.params_json_schema,
    }


def _unchanged(item: Any) -> Any:
    """Return an item, which is its own record."""
    return item


def _settings(settings: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
    if settings is None or isinstance(settings, Mapping):
        names = {field.name for field in fields(SessionSettings)}
        unknown = [name for name in settings or {} if name not in names]
        if unknown:
            raise TypeError(
                f"Unknown session settings: {', '.join(unknown)}; the settings are"
                f" {', '.join(sorted(names))}"
            )
        return SessionSettings(**(settings or {}))
    return settings


def _model_name(model: Any) -> str | None:
    """Return the name of an agent's model, or else the name of the model's class. Return None if
    the agent has no model.
    """
    names = (model, getattr(model, "model", None), getattr(model, "model_name", None))
    model_name = next((name for name in names if isinstance(name, str)), None)
    return type(model).__name__ if model_name is None and model is not None else model_name


def _items(prompt: SentRecords, shown: Iterable[Event]) -> list[Any]:
    """Return the items that are sent for events of the View. If an item of reasoning is left out,
    the next item and its further calls are sent without ids, because OpenAI's server refuses an id
    without its reasoning.
    """
    items = list[Any]()
    is_without_reasoning = False
    for (event, *_), records in prompt.records(shown, _FORMAT):
        if is_without_reasoning:
            items += [{key: record[key] for key in record if key != "id"} for record in records]
        else:
            items += records
        is_reasoning_left_out = not records and event.stays_with_next
        goes_on = is_without_reasoning and isinstance(event, Action)
        is_without_reasoning = goes_on or is_reasoning_left_out
    return items


def _items_after(input_items: Sequence[Any], newest: Any) -> list[Any] | None:
    """Return the items in ``input_items`` after the session's newest item, or None if
    ``input_items`` does not contain this item.
    """
    for place in range(len(input_items) - 1, -1, -1):
        if _are_equal_items(input_items[place], newest):
            return list(input_items[place + 1 :])
    return None


def _are_equal_items(one: Any, other: Any) -> bool:
    """Return whether two items have the same content. The SDK may change other fields, such as
    ``id`` and ``status``.
    """
    if not isinstance(one, dict) or not isinstance(other, dict):
        return bool(one == other)
    keys = (
        "type",
        "role",
        "content",
        "call_id",
        "name",
        "arguments",
        "output",
        "summary",
        "input",
        "action",
    )
    return all(one.get(key) == other.get(key) for key in keys if key in one or key in other)
