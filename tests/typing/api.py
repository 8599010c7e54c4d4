"""The public names, used as a stranger would. It is never run: ``mypy --strict`` reads it."""

from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, assert_type

from pydantic import BaseModel

import foldlog
import foldlog.aio
import foldlog.condensers
from foldlog import (
    Action,
    Condensation,
    CondensationAction,
    Histories,
    History,
    Lease,
    Message,
    Observation,
    SystemMessage,
)
from foldlog.condensers import (
    LLM,
    AgentModel,
    CondenseHandler,
    Condenser,
    LLMConfig,
    PipelineCondenser,
    RecentEventsCondenserConfig,
    RollingCondenser,
    condenser_config_from_toml_section,
    condenser_from_config,
    get_condensation_metadata,
    load_condenser,
)
from foldlog.eventstore import (
    ANY_VERSION,
    CondensationSummary,
    Event,
    Recorded,
    Store,
)
from foldlog.formats import FORMATS, SourceRefused, decode, encode
from foldlog.projections import Difference, Moment, View, Views, Why, well_formed


def an_exchange() -> tuple[SystemMessage, Message, Action, Observation]:
    return (
        SystemMessage(
            content="You mend code.", tools=[{"type": "function", "function": {"name": "run"}}]
        ),
        Message(source="user", content="Why does the test fail?"),
        Action(tool="terminal", arguments={"command": "pytest -x"}, call_id="call-1"),
        Observation(tool="terminal", content="1 failed", call_id="call-1", cause=2, is_error=True),
    )


def a_condensation() -> CondensationAction:
    return CondensationAction(
        forgotten_event_ids=(2, 3), summary="The test fails.", summary_offset=2
    )


def the_face() -> list[dict[str, Any]]:
    with foldlog.open("sqlite:///history.db", durability="relaxed") as histories:
        assert_type(histories, Histories)
        history = assert_type(histories["c1"], History)
        assert_type(history.append(an_exchange()), tuple[Recorded, ...])
        assert_type(
            history.append(a_condensation(), expected_version=4, idempotency_key="k"),
            tuple[Recorded, ...],
        )
        assert_type(history.request_condensation("the window is full"), Recorded)
        assert_type(history.open_calls(), tuple[Action, ...])
        assert_type(history.close_open_calls("the program died"), tuple[Recorded, ...])
        with history.lease(ttl_s=10, wait_s=0) as lease:
            assert_type((lease.held, lease.worker, lease.until), tuple[bool, str, datetime])
        assert_type(history.current_lease(), Lease | None)
        assert_type(history.at(4), View)
        assert_type(list(history.events(0, 2)), list[Event])
        ids = [conversation for conversation in histories if conversation in histories]
        assert_type(ids, list[str])
        assert_type(history.view().system_prompt, str)
        assert_type(history.view().to_messages("anthropic"), list[dict[str, Any]])
        return history.view().to_messages()


def the_loop() -> list[dict[str, Any]]:
    agent = LLM(LLMConfig(model="openai/gpt-4o-mini"))
    with foldlog.open(
        "sqlite:///history.db", condenser="config.toml", agent_llm=agent
    ) as histories:
        history = histories["c1"]
        history.append(Message(source="user", content="hi"))
        match history.step():
            case View() as view:
                return view.to_messages()
            case Condensation(action=action):
                assert_type(action, CondensationAction)
        assert_type(history.condense(), View | Condensation)
        assert_type(history.why(0), Why)
        assert_type(history.difference(0, 1), Difference)
        assert_type(history.lifetimes().of(0).at(1), Moment)
        assert_type(histories.condenser, Condenser)
        return []


def the_ways_to_say_which_condenser() -> None:
    foldlog.open("memory:", condenser=Path("config.toml"))
    foldlog.open("memory:", condenser={"type": "digest", "max_size": 80})
    foldlog.open("memory:", condenser=load_condenser("config.toml"))
    foldlog.open("memory:", condenser=None)


def the_store(store: Store) -> Iterator[Event]:
    store.append("c1", Message(source="user", content="hi"), expected_version=0)
    store.append("c1", list(an_exchange()), expected_version=ANY_VERSION)
    for recorded in store.follow(after_position=0, limit=10):
        assert_type(recorded, Recorded)
        yield recorded.event
    assert_type(store.conversations(limit=10)[0].id, str)
    yield from store.events("c1", start=1, stop=3)


def the_views(store: Store) -> tuple[Event, ...]:
    views = Views(store)
    view = assert_type(views.current("c1"), View)
    assert_type(views.at("c1", version=3), View)
    assert_type(well_formed(view), View)
    assert_type(view.cut_points, tuple[int, ...])
    assert_type(view.unhandled_condensation_request, bool)
    assert_type(view[0], Event)
    return view[1:3]


def the_handler(store: Store, condenser: Condenser) -> View:
    match CondenseHandler(store, Views(store), condenser).handle("c1"):
        case Condensation(action=action):
            return Views(store).at("c1", version=action.id + 1)
        case View() as view:
            return view


def a_condenser() -> Condenser:
    assert_type(load_condenser("config.toml"), Condenser)
    return condenser_from_config({"type": "digest", "max_size": 80})


def the_formats(histories: Histories, records: list[Any]) -> list[Any]:
    try:
        assert_type(histories.import_("runs/"), tuple[History, ...])
    except SourceRefused as error:
        assert_type(error, SourceRefused)
    return list(encode(decode(records, format=FORMATS[0]), FORMATS[0]))


async def the_async_face_has_the_types_of_the_sync_one() -> None:
    async with foldlog.aio.open("memory:") as histories:
        history = histories["c1"]
        assert_type(await history.append(an_exchange(), expected_version=0), tuple[Recorded, ...])
        async with history.lease() as lease:
            assert_type(lease, Lease)
        assert_type(await history.view(), View)
        assert_type(await history.step(), View | Condensation)
        assert_type(await history.prepare(), View)
        assert_type(await history.append_tool_result("k1", "done"), Recorded)
        async for event in history.events(0, 2):
            assert_type(event, Event)
        async with aclosing(histories.follow(after_position=3)) as following:
            assert_type(await anext(following), Recorded)


def a_mistyped_name_fails() -> None:
    """``mypy --strict`` reports an ignored error that is none."""
    foldlog.opne  # type: ignore[attr-defined]  # noqa: B018
    foldlog.condensers.load_condensr  # type: ignore[attr-defined]  # noqa: B018


def a_loop_without_mapping_by_hand(client: Any) -> list[dict[str, Any]]:
    keys = foldlog.KeyRing.from_file("keys")
    with foldlog.open(
        Path("history.db"), condenser="digest", keys=keys, compression="zlib"
    ) as histories:
        history = histories["c1"]
        reply = client.chat.completions.create(messages=history.prepare().to_messages("openai"))
        assert_type(history.append_reply(reply), tuple[Recorded, ...])
        for call in history.open_calls():
            assert_type(
                history.append_tool_result(call.call_id or "", "done", is_error=False), Recorded
            )
        assert_type(foldlog.from_openai(reply), tuple[Event, ...])
        assert_type(len(history), int)
        histories.erase("c2", reason="asked for")
        assert_type(
            history.append_records([{}], format="openai-chat", dedupe="origin"),
            tuple[Recorded, ...],
        )
        assert_type(histories.find("id", format="openai-chat")[0].event_id, int)
        return history.view().to_messages("anthropic")


class State:
    """What an agent's step has in the place of a history."""

    def __init__(self) -> None:
        self.history: list[Event] = []
        self.extra_data: dict[str, Any] = {}


class Oldest(RollingCondenser):
    def should_condense(self, view: View, agent_llm: AgentModel | None = None) -> bool:
        return len(view) > 10

    def get_condensation(self, view: View, agent_llm: AgentModel | None = None) -> Condensation:
        return Condensation(forgotten_event_ids=[event.id for event in view[:5]])


class NewestConfig(BaseModel):
    type: Literal["newest"] = "newest"
    count: int = 5


class Newest(RollingCondenser):
    """A strategy whose methods take a View alone, as published ones do."""

    def __init__(self, count: int) -> None:
        self.count = count

    def should_condense(self, view: View) -> bool:
        return len(view) > 2 * self.count or view.unhandled_condensation_request

    def get_condensation(self, view: View) -> Condensation:
        ids = [event.id for event in view[: -self.count]]
        return Condensation(action=CondensationAction(forgotten_event_ids=ids))

    @classmethod
    def from_config(cls, config: NewestConfig) -> "Newest":
        return cls(config.count)


class Whole(Condenser):
    def condense(self, view: View) -> View | Condensation:
        return view


def a_strategy_of_ones_own(view: View, model: AgentModel) -> None:
    Newest.register_config(NewestConfig)
    assert_type(Newest.from_config(NewestConfig()), Newest)
    condensers: list[Condenser] = [Newest(5), Oldest(), Whole()]
    for condenser in condensers:
        assert_type(condenser.condense(view), View | Condensation)
        assert_type(condenser.condense(view, model), View | Condensation)


def a_configuration_from_toml(section: dict[str, Any]) -> Condenser:
    models = {"llm": LLMConfig(model="gpt-4o-mini", api_key="key")}
    config = condenser_config_from_toml_section(section, models)["condenser"]
    assert_type(config.type, Any)
    return Condenser.from_config(config)


def published_names(history: History) -> None:
    condenser = Condenser.from_config(RecentEventsCondenserConfig(max_events=5))
    for state in (history, State()):
        assert_type(condenser.condensed_history(state), View | Condensation)
        assert_type(get_condensation_metadata(state), list[Any])
    with condenser.metadata_batch(State()):
        condenser.add_metadata("length", 1)
    assert_type(
        PipelineCondenser(condensers=[Oldest(), condenser]).condensers, tuple[Condenser, ...]
    )
    assert_type(history.view().summary_event, CondensationSummary | None)
    assert_type(
        Condensation(action=CondensationAction(forgotten_event_ids=(1,))).action, CondensationAction
    )
