"""Sessions of the OpenAI Agents SDK in foldlog, and condensing within a run.

    session = FoldlogSession("user-7", "sqlite:///history.db", condense=True)
    await Runner.run(agent, "hello", **session.run_options())

A session is a conversation in the format ``openai-responses``. Items that the SDK takes back
(``pop_item``, a rewind, ``clear_session``) are retracted, and stay in the log. The SDK reads a
session once, at the start of a run. So condensing within a run needs the filter, and recording the
usage of a call of the model needs the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal

from agents import (
    Agent,
    FunctionTool,
    ModelResponse,
    RunConfig,
    RunHooks,
    Session,
    SessionSettings,
    TResponseInputItem,
)
from agents.run import CallModelData, ModelInputData
from msgspec import structs

from foldlog import History
from foldlog.adapters._shared import (
    CLEARED,
    Attributes,
    HistoriesGiven,
    OpenHistories,
    SentRecords,
    effect_of,
    empty_session,
    in_thread,
    not_here_yet,
    quoted,
    sent_whole,
    shown_records,
    to_its_end,
)
from foldlog.eventstore import (
    NOT_RECORDED,
    Action,
    Annotation,
    ConversationErased,
    Event,
    Recorded,
    Retraction,
    VersionConflict,
)
from foldlog.projections import well_formed
from foldlog.runtimes import COMPACTED_BY_PROVIDER, change_of_prompt, staying, usage_meta

_FORMAT = "openai-responses"


class FoldlogSession(OpenHistories):
    """One session. Use it as ``Runner.run(..., session=...)``.

    ``session_id``        the id of the session; its conversation is ``PREFIX/SESSION``, quoted as
                          in a URL
    ``histories``         the URL of a store, or open histories, sync or async. A store that was
                          opened by its URL is closed by ``close`` or ``async with``
    ``condense``          whether ``get_items`` and ``input_filter`` condense, if the condenser of
                          ``histories`` finds a condensation due. Otherwise both return the items of
                          ``history.sent``
    ``clear``             whether ``clear_session`` retracts all items, or erases the conversation
                          with its bytes. Items that are added after an erasure begin another
                          conversation with the same id
    ``session_settings``  the settings of every session: ``SessionSettings(limit=50)``, or
                          ``{"limit": 50}``
    ``attributes``        the attributes of a new conversation, such as ``{"user": "u7", "title":
                          "Refunds"}``

    Any number of tasks, processes and sessions may use one conversation.
    """

    def __init__(
        self,
        session_id: str,
        histories: HistoriesGiven,
        *,
        condense: bool = False,
        clear: Literal["retract", "erase"] = "retract",
        session_settings: SessionSettings | Mapping[str, Any] | None = None,
        prefix: str = "openai-agents",
        attributes: Attributes = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings = _settings(session_settings)
        super().__init__(histories, attributes)
        self.history = self.histories[f"{prefix}/{quoted(session_id)}"]
        self._condense = condense
        self._clear = clear

    @in_thread
    def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest ``limit`` items of the View, by default all items, in order, as they
        were added. If the session was made with ``condense``, the View is condensed first.
        ``history.events()`` returns all items of the log.

        A message of the user with the summary replaces condensed items. Only the returned items are
        read.
        """
        if limit is None:
            limit = _settings(self.session_settings).limit
        if limit is not None and limit <= 0:
            return []
        history = self.history
        for _ in range(2):
            with suppress(ConversationErased):
                items = self._items_of(history.sync, limit)
                self.history = history
                return items[-(limit or 0) :]
            history = self.histories[history.id]  # another session with this id may have begun
        return []

    def _items_of(self, history: History, limit: int | None) -> list[Any]:
        whole = None if self._condense else sent_whole(history, _FORMAT)
        if whole is not None:
            return list(whole.records(limit))
        prompt = SentRecords(history, condense=self._condense)
        return _items(prompt, prompt.view if limit is None else prompt.view.tail(limit))

    @to_its_end
    def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append all of ``items``, or none if an error is raised. The items are on disk when the
        method returns.

        If items with a compaction are added directly after ``clear_session``, as by the SDK's own
        compaction, the added items replace the cleared items: a condensation forgets each cleared
        item that is not among the added items. If the session was erased before this object read or
        wrote the session, a new session begins. Raises ``ConversationErased`` if other code erased
        the session after this object read or wrote it.
        """
        if items:
            self._appended(
                lambda history: (
                    _compacted(history, items) or history.append_records(items, format=_FORMAT)
                )
            )

    async def pop_item(self) -> TResponseInputItem | None:
        """Retract the newest item and return it. Return None if the session has no item, or if the
        newest item is a summary.
        """
        try:
            events = await self.history.pop(1, "the runtime took the newest item back")
        except ConversationErased:
            if await self.get_items(1):
                raise  # another session with this id began, and this object has not read its items
            return None
        popped = [
            item for _, items in shown_records(events, _FORMAT, self.history.sync) for item in items
        ]
        return popped[-1] if popped else None

    @to_its_end
    def clear_session(self) -> None:
        """Retract or erase all items: see ``clear``."""
        empty_session(self.histories.sync, self.history.id, self._clear)
        if self._clear == "erase":
            self.history = self.histories[self.history.id]

    def with_effects(self, agent: Agent[Any]) -> Agent[Any]:
        """Return a copy of the agent for runs with this session. In the copy, tools with the mark
        ``foldlog.effect`` run at most once.
        """
        tools = [
            self._around(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools
        ]
        return agent.clone(tools=tools)

    def _around(self, tool: FunctionTool) -> FunctionTool:
        async def invoke(context: Any, arguments: str) -> Any:
            with effect_of(self, self.history.id, context.tool_call_id, tool.name, arguments):
                return await tool.on_invoke_tool(context, arguments)

        return replace(tool, on_invoke_tool=invoke)

    async def copy_from(self, other: Session) -> int:
        """Copy the items of another session, such as a ``SQLiteSession``. Return the number of new
        items.

        A second copy adds only new items. Raises ``ValueError`` if the other session does not begin
        with the items of this session, because this session was condensed or has items of its own.
        """
        new = not_here_yet(
            self.session_id, await self.get_items(), await other.get_items(), "items"
        )
        await self.add_items(new)
        return len(new)

    async def input_filter(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the model's input with the condensed items replaced by their summary, for
        ``RunConfig``.

        Items of the run that are not in the session yet stay at the end. If the session has other
        items than the runner, the input is returned unchanged.
        """
        given = data.model_data
        shown = await self.histories.pool.run(partial(self._sent, given.input), finish=False)
        if shown is None:
            return given
        return ModelInputData(input=shown, instructions=given.instructions)

    def _sent(self, given: Sequence[Any]) -> list[Any] | None:
        """Return the items that are sent to a model instead of the items in ``given``; None if the
        items in ``given`` are sent unchanged.
        """
        known = self.history.sync._asked_at
        prompt = SentRecords(self.history.sync, condense=self._condense)
        if prompt.is_all:
            return None
        for event in reversed(prompt.log):
            if newest := _items(prompt, [event]):
                forms = (
                    newest,
                    _items(prompt, [each for each in prompt.view if each.id == event.id]),
                )
                for rest in (_after(given, form[-1]) for form in forms if form):
                    if rest is not None:
                        return [*_items(prompt, well_formed(prompt.view)), *rest]
                break
        self.history.sync._asked_at = known
        return None

    def run_options(self, config: RunConfig | None = None) -> dict[str, Any]:
        """Return the arguments of ``Runner.run`` that give a run the session, its filter and its
        hooks: ``await Runner.run(agent, "hello", **session.run_options())``. ``config`` are other
        settings of the run.

        Raises ``ValueError`` if ``config`` has a ``call_model_input_filter``: call ``input_filter``
        in your own filter instead.
        """
        settings = config or RunConfig()
        if settings.call_model_input_filter is not None:
            raise ValueError(
                "the config has a call_model_input_filter; call session.input_filter in it, and"
                " give Runner.run the session and the config instead of run_options"
            )
        return {
            "session": self,
            "run_config": replace(settings, call_model_input_filter=self.input_filter),
            "hooks": self.hooks,
        }

    @property
    def hooks(self) -> RunHooks[Any]:
        """Hooks that call ``record_usage`` for each response of a run: ``Runner.run(...,
        hooks=session.hooks)``.
        """
        return _Usage(self)

    @to_its_end
    def record_usage(self, agent: Agent[Any], response: ModelResponse) -> None:
        """Record the usage of a response. If you have hooks of your own, call this method in
        ``on_llm_end``, because the SDK does not report the usage to a session. Views do not show
        the usage; ``foldlog stats`` counts it.

        Raises the errors of ``add_items``. The usage is on disk when the method returns.
        """
        used = response.usage
        model = _name_of(agent.model)
        told: dict[str, Any] = {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
        }
        for name in ("input_tokens_details", "output_tokens_details"):
            told[name] = getattr(getattr(used, name, None), "__dict__", {})
        event = Annotation(name="usage", meta=usage_meta(told, model=model))
        self._appended(lambda history: history.append(event))

    def _appended(self, append: Callable[[History], tuple[Recorded, ...]]) -> None:
        def append_to_run(history: History) -> None:
            known = history._asked_at
            recorded = append(history)
            # the model of a run is shown the events of this run, not those of others
            if known is not None and recorded:
                if recorded[0].id == known:
                    history._asked_at = recorded[-1].id + 1
                else:
                    history._asked_at = known

        history, _ = self._append_or_begin(self.history.sync, append_to_run)
        if history is not self.history.sync:
            self.history = self.histories[self.history.id]


def _compacted(history: History, items: Sequence[Any]) -> tuple[Recorded, ...]:
    """If ``items`` have a compaction and replace items that the SDK has just cleared, append
    ``items``: the View before the clearing returns, without the events that are not among
    ``items``. Otherwise append nothing and return an empty tuple.
    """
    if not any(isinstance(item, dict) and item.get("type") == "compaction" for item in items):
        return ()
    last = history.tail(1)
    if not (last and isinstance(last[0], Retraction) and last[0].reason == CLEARED):
        return ()
    (cleared,) = last
    before = history.at(cleared.id)
    shown = [(events, made[0]) for events, made in shown_records(before, _FORMAT, history) if made]
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
    events: list[Event] = [
        Retraction(version=cleared.id, reason="the session was compacted, not cleared")
    ]
    events += [] if change is None else [change]
    recorder = history._recorder(_FORMAT)
    if recorder.version != cleared.id + 1:
        raise VersionConflict(history.id, cleared.id + 1, recorder.version)
    recorder.skip(len(events))
    for item in items[len(places) :]:
        events += (structs.replace(event, id=NOT_RECORDED) for event in recorder.decode(item))
    return history._append_recorded(events, recorder, cleared.id + 1)


class _Usage(RunHooks[Any]):  # type: ignore[misc]
    """Records the usage of each response in a session."""

    def __init__(self, session: FoldlogSession) -> None:
        self._session = session

    async def on_llm_end(self, context: Any, agent: Agent[Any], response: ModelResponse) -> None:
        await self._session.record_usage(agent, response)


def _settings(given: SessionSettings | Mapping[str, Any] | None) -> SessionSettings:
    """Return the settings as a ``SessionSettings``. Raises ``TypeError`` if a name is not one of
    the SDK's settings.
    """
    if given is None or isinstance(given, Mapping):
        known = {field.name for field in fields(SessionSettings)}
        unknown = [name for name in given or {} if name not in known]
        if unknown:
            raise TypeError(
                f"Unknown session settings: {', '.join(unknown)}; the settings are"
                f" {', '.join(sorted(known))}"
            )
        return SessionSettings(**(given or {}))
    return given


def _name_of(model: Any) -> str | None:
    """Return the name of an agent's model, which is a text or an object. If the object has no name,
    return the name of its class. Return None if the run chooses the model.
    """
    names = (model, getattr(model, "model", None), getattr(model, "model_name", None))
    model_name = next((name for name in names if isinstance(name, str)), None)
    return type(model).__name__ if model_name is None and model is not None else model_name


def _items(prompt: SentRecords, shown: Iterable[Event]) -> list[Any]:
    """Return the items of the events ``shown``. If the reasoning before calls was cleared, the
    calls have no ids, because a server that knows the id of a call requires the reasoning before
    the call.
    """
    items = list[Any]()
    cleared = False
    for (event, *_), records in prompt.records(shown, _FORMAT):
        if not cleared:
            current = records
        else:
            current = [{key: record[key] for key in record if key != "id"} for record in records]
        cleared = (cleared and isinstance(event, Action)) or (not records and event.stays_with_next)
        items += current
    return items


def _after(given: Sequence[Any], newest: Any) -> list[Any] | None:
    """Return the items of a run after the newest item of the session; None if the run does not have
    the newest item of the session.
    """
    for place in range(len(given) - 1, -1, -1):
        if _same(given[place], newest):
            return list(given[place + 1 :])
    return None


def _same(one: Any, other: Any) -> bool:
    """Return whether two items are equal. The SDK may send items without ids and states."""
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
