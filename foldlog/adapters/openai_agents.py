"""Sessions of the OpenAI Agents SDK in foldlog, and condensing within a run.

    session = FoldlogSession("user-7", "sqlite:///history.db", condense=True)
    await Runner.run(agent, "hello", **session.run_options())

A session is a conversation of the format ``openai-responses``. Items that the SDK takes back
(``pop_item``, a rewind, ``clear_session``) are retracted: the log keeps them. The SDK reads a
session once, at the start of a run, so condensing within a run needs the filter, and only the hooks
are told what a call of the model used.
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
    """One session: what ``Runner.run(..., session=...)`` takes.

    ``session_id``        its id; the conversation is ``PREFIX/SESSION``, quoted as in a URL
    ``histories``         the URL of a store, or open histories of either face. What is opened by
                          its URL is closed by
                          ``close``, or by ``async with``
    ``condense``          whether ``get_items`` and ``input_filter`` condense, where the condenser
                          of ``histories`` says
                          so. Without it both give what ``history.sent`` has
    ``clear``             whether ``clear_session`` retracts all items, or erases the conversation:
                          then its bytes are
                          gone. What is added then begins another conversation with the id
    ``session_settings``  as of other sessions: ``SessionSettings(limit=50)``, or ``{"limit": 50}``
    ``attributes``        those that the conversation begins with, such as ``{"user": "u7", "title":
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
        """Return the newest ``limit`` items of the View, all by default, in order, as they were
        given. With ``condense`` the View is condensed first. ``history.events()`` returns all items
        of the log.

        Condensed items are one item, a user's message with the summary. Cost: the items returned.
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
        """Append items, all or none. Durability: on disk when it returns.

        Items with a compaction that are added right after ``clear_session`` replace what was
        cleared, as the SDK's own compaction does: a condensation of what they leave out. If the
        session was erased before this object read or wrote it, a new one begins. Raises
        ``ConversationErased`` if other code erased it since then.
        """
        if items:
            self._appended(
                lambda history: (
                    _compacted(history, items) or history.append_records(items, format=_FORMAT)
                )
            )

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item back and return it; None if there is no item, or if a summary is the
        newest item.
        """
        try:
            events = await self.history.pop(1, "the runtime took the newest item back")
        except ConversationErased:
            if await self.get_items(1):
                raise  # another session with this id began, whose items this object has not seen
            return None
        popped = [
            item for _, items in shown_records(events, _FORMAT, self.history.sync) for item in items
        ]
        return popped[-1] if popped else None

    @to_its_end
    def clear_session(self) -> None:
        """Take all items back, or erase them: see ``clear``."""
        empty_session(self.histories.sync, self.history.id, self._clear)
        if self._clear == "erase":
            self.history = self.histories[self.history.id]

    def with_effects(self, agent: Agent[Any]) -> Agent[Any]:
        """Return the agent for runs with this session: tools that ``foldlog.effect`` marks run at
        most once.
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
        ones.

        Copying again adds only new items. Raises ``ValueError`` if the items of this session are
        not the first ones of the other: it was condensed, or went on by itself.
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
        """Return what a model is sent in the place of these items; None if it is these."""
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
        in yours.
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
        """Hooks for a run that call ``record_usage``: ``Runner.run(..., hooks=session.hooks)``."""
        return _Usage(self)

    @to_its_end
    def record_usage(self, agent: Agent[Any], response: ModelResponse) -> None:
        """Record what a response used: call it in ``on_llm_end`` of hooks of your own. The SDK does
        not give it to a session. No View shows it, and ``foldlog stats`` counts it.

        Raises what ``add_items`` raises. Durability: on disk when it returns.
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
            # the model of a run is shown what the run adds, not what others add
            if known is not None and recorded:
                if recorded[0].id == known:
                    history._asked_at = recorded[-1].id + 1
                else:
                    history._asked_at = known

        history, _ = self._append_or_begin(self.history.sync, append_to_run)
        if history is not self.history.sync:
            self.history = self.histories[self.history.id]


def _compacted(history: History, items: Sequence[Any]) -> tuple[Recorded, ...]:
    """Append items that the SDK puts in the place of those that it just cleared, where they hold a
    compaction: the View from before returns, and loses what is not among them. Return nothing where
    that is not so.
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
    # The compaction that follows forgets all but the user's messages. So only of these some may be
    # missing.
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
    """Return settings as one object. Raises ``TypeError`` if a name is not one of the SDK's
    settings.
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
    """Return the name of an agent's model: a text, an object that names its own, or else the name
    of its class. None where the run chooses.
    """
    names = (model, getattr(model, "model", None), getattr(model, "model_name", None))
    told = next((name for name in names if isinstance(name, str)), None)
    return type(model).__name__ if told is None and model is not None else told


def _items(prompt: SentRecords, shown: Iterable[Event]) -> list[Any]:
    """Return the items of these events. Calls whose reasoning was cleared have no ids: a server
    asks for the reasoning of those that it knows.
    """
    items = list[Any]()
    cleared = False
    for (event, *_), records in prompt.records(shown, _FORMAT):
        if not cleared:
            known = records
        else:
            known = [{key: record[key] for key in record if key != "id"} for record in records]
        cleared = (cleared and isinstance(event, Action)) or (not records and event.stays_with_next)
        items += known
    return items


def _after(given: Sequence[Any], newest: Any) -> list[Any] | None:
    """Return the items of a run after the newest item of the session; None if the run does not have
    that item.
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
