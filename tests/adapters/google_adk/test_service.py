"""``FoldlogSessionService``: equal to the SDK's own SQLite service, exact, and what runs do with
it.
"""

import asyncio
import json
import random
import sqlite3
from contextlib import closing, suppress
from functools import partial

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps.app import App, EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.adk.platform import time as platform_time
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from pydantic import BaseModel

import foldlog
from foldlog.adapters import google_adk
from foldlog.adapters.google_adk import FoldlogSessionService
from foldlog.condensers import Condensation
from foldlog.eventstore import CondensationAction, Documents, StoreUnavailable
from foldlog.eventstore.log.appending import Appending
from foldlog.eventstore.log.redacted import can_be_redacted
from foldlog.formats import decode
from foldlog.projections import View
from foldlog.runtimes import HistoryRecorder
from tests.adapters.contract import (
    IMAGE,
    STRATEGIES,
    Condenses,
    Lists,
    approvals_of,
    check_import,
    check_requests,
    condensations,
    decided,
    history_of,
)
from tests.adapters.google_adk.scripted import (
    USAGE,
    any_event,
    any_state,
    call,
    reply,
    said,
    scripted,
)
from tests.between import before_next_call, fail_next_call

pytestmark = [
    pytest.mark.anyio,
    # The releases of OpenTelemetry that the older SDK takes read entry points in a way that Python
    # 3.11 warns of.
    pytest.mark.filterwarnings("ignore:SelectableGroups dict interface:DeprecationWarning"),
    # The SDK says once in a process which of its own features are experimental.
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning"),
]
S = {"app_name": "a", "user_id": "u", "session_id": "s"}
KEYS = "k", "user:k", "app:k"


@pytest.fixture
def service(histories):
    return FoldlogSessionService(histories)


def change(**fields):
    """Return an event of a user with these fields of its actions."""
    return event_of(actions=EventActions(**fields))


def event_of(**fields):
    return Event(**{"author": "user", "invocation_id": "i", **fields})


async def events_of(service):
    return (await service.get_session(**S)).events


async def ids_of(service):
    return [event.id for event in await events_of(service)]


def exact(value):
    """Return a value to compare, which differs if a field or a type differs."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    dump = getattr(value, "model_dump", None)
    return repr(value if dump is None else dump(mode="python"))


async def outcome(work):
    try:
        return await work
    except (AlreadyExistsError, SessionNotFoundError, StaleSessionError) as error:
        return type(error)


async def erase_state(service, *names):
    """Erase the state of an app, or of one of its users."""
    if isinstance(service, FoldlogSessionService):
        with suppress(foldlog.ConversationNotFound):
            service.histories.sync.erase(service.conversation(*names), reason="asked to")
        return
    table, which = ("user", " AND user_id = ?") if names[1:] else ("app", "")
    with closing(sqlite3.connect(service._db_path)) as database, database:
        database.execute(f"DELETE FROM {table}_states WHERE app_name = ?{which}", names)


def random_operation(choice, number):
    """Return a function that does one thing with a service, and with the sessions that a program
    holds. It does the same with each service.
    """
    names = {"app_name": choice.choice(["a", "b/ü"]), "user_id": choice.choice(["u", "v w"])}
    session_id = choice.choice(["s", "t", " s ", "x/y"])
    key = (*names.values(), session_id)
    draw = choice.random()
    state = any_state(choice)
    seed = choice.random()
    shared_by = choice.choice([("app_name",), ("app_name", "user_id")])
    config = GetSessionConfig(
        num_recent_events=choice.choice([None, 0, 1, 3]),
        after_timestamp=choice.choice([None, 0.0, 1050.0]),
    )

    async def operate(service, held):
        if draw < 0.12:
            return await service.create_session(state=dict(state), session_id=session_id, **names)
        if draw < 0.6 and key in held:
            event = any_event(random.Random(seed), number, plain=True)
            appended = await outcome(service.append_event(held[key], event))
            return [appended, held[key].state, held[key].last_update_time]
        if draw < 0.85:
            session = await service.get_session(session_id=session_id, config=config, **names)
            if session is not None:
                held[key] = session
            return session
        if draw < 0.9:
            return (await service.list_sessions(**names)).sessions
        if draw < 0.94:
            return (await service.list_sessions(app_name=names["app_name"])).sessions
        if draw < 0.96:
            return await service.get_user_state(**names)
        if draw < 0.98:
            return await erase_state(service, *(names[each] for each in shared_by))
        return await service.delete_session(session_id=session_id, **names)

    return operate


class StrictSqliteService(SqliteSessionService):
    """As the SDK's ``DatabaseSessionService``, refuse an event if the stored session is older."""

    async def append_event(self, session, event):
        names = {"app_name": session.app_name, "user_id": session.user_id}
        stored = await self.get_session(session_id=session.id, **names)
        if stored is not None and stored.last_update_time < session.last_update_time:
            raise StaleSessionError
        return await super().append_event(session, event)


@pytest.mark.parametrize("seed", range(2))
async def test_random_operations_equal_the_sdks_service(service, tmp_path, seed):
    choice = random.Random(seed)
    theirs = StrictSqliteService(str(tmp_path / "theirs.db"))
    ours_held = {}
    theirs_held = {}
    number = 0
    appended = 0
    platform_time.set_time_provider(lambda: 900.0 + number)
    try:
        for number in range(150):
            operate = random_operation(choice, number)
            answer = await outcome(operate(service, ours_held))
            assert as_json(answer) == as_json(await outcome(operate(theirs, theirs_held)))
            appended += isinstance(answer, list) and isinstance((answer or [None])[0], Event)
    finally:
        platform_time.reset_time_provider()
    assert appended > 20


def as_json(value):
    """Return what the SDK's own service keeps of a value: its JSON, where keys of a state have no
    order.
    """
    if isinstance(value, list):
        return [as_json(each) for each in value]
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


async def talk(service, count=1, **names):
    names = {**S, **names}
    session = await service.get_session(**names) or await service.create_session(**names)
    for _ in range(count):
        number = len(session.events)
        await service.append_event(session, event_of(id=f"e{number}", content=said(str(number))))
    return session


async def test_random_events_survive_a_reopen(file_url):
    choice = random.Random(3)
    events = [any_event(choice, number) for number in range(200)]
    events.sort(key=lambda event: event.timestamp)
    events[0].actions = EventActions(state_delta={"$bytes": 1, "temp:x": 1})
    async with FoldlogSessionService(file_url) as service:
        session = await service.create_session(
            **S, state={"b": b"\x00", "t": (1,), "app:s": "\ud800", "temp:x": 1}
        )
        for event in events:
            await service.append_event(session, event)
        held = {key: value for key, value in session.state.items() if not key.startswith("temp:")}
    async with FoldlogSessionService(f"foldlog+{file_url}") as service:  # as in services.yaml
        loaded = await service.get_session(**S)
        assert exact(loaded.events) == exact(events)
        assert loaded.events == events
        assert sorted(map(repr, loaded.state.items())) == sorted(map(repr, held.items()))
        recent = await service.get_session(**S, config=GetSessionConfig(num_recent_events=7))
        assert exact(recent.events) == exact(events[-7:])
        assert recent.state == loaded.state
        time = events[100].timestamp
        after = await service.get_session(**S, config=GetSessionConfig(after_timestamp=time))
        assert after.events == [event for event in events if event.timestamp >= time]


@pytest.mark.parametrize("killed_at", ["adk/a/u/s", "adk/a/u/+state", "adk/a/+state"])
async def test_events_and_shared_states_change_atomically(service, monkeypatch, killed_at):
    session = await service.create_session(**S, state=dict.fromkeys(KEYS, 1))
    delta = dict.fromkeys(KEYS, 2)
    append = Appending.__call__
    event = change(state_delta=delta)

    def killed(work, transaction):
        result = append(work, transaction)
        if work.conversation == killed_at:
            raise InterruptedError
        return result

    with monkeypatch.context() as patched:
        patched.setattr(Appending, "__call__", killed)
        with pytest.raises(InterruptedError):
            await service.append_event(session, event.model_copy(deep=True))
    assert await service.get_session(**S) == session
    await service.append_event(session, event)
    assert (await service.get_session(**S)).state == delta


@pytest.mark.parametrize("scope, names", [("user", ("a", "u")), ("app", ("a",))])
async def test_an_erased_shared_state_begins_empty(service, scope, names):
    for session_id, value, expected in (("s", "old", {}), ("t", "new", {f"{scope}:k": "new"})):
        session = await service.create_session(**{**S, "session_id": session_id})
        await service.append_event(session, change(state_delta={f"{scope}:k": value}))
        if value == "old":
            await erase_state(service, *names)
        for each in (await service.list_sessions(app_name="a")).sessions:
            loaded = await service.get_session(**{**S, "session_id": each.id})
            assert loaded.state == each.state == expected


async def test_concurrent_sessions_restore_no_erased_state(url):
    async with FoldlogSessionService(url) as first:
        second = FoldlogSessionService(first.histories if url == "memory:" else url)

        async def work(service, name):
            session = await service.create_session(**{**S, "session_id": name})
            for number in range(10):
                delta = {f"{scope}:{name}": number for scope in ("app", "user")}
                await service.append_event(session, change(state_delta=delta))
            return name

        async def states():
            return await first.get_user_state(app_name="a", user_id="u"), first._shared_state("a")

        async def erase():
            for _ in range(5):
                await asyncio.sleep(0.02)
                before = await states()
                for names in (("a", "u"), ("a",)):
                    with suppress(foldlog.ConversationNotFound):
                        first.histories.sync.erase(first.conversation(*names), reason="asked to")
                for was, now in zip(before, await states(), strict=True):
                    assert all(number > was.get(name, -1) for name, number in now.items())

        def sessions(name):
            return [work(each, f"{name}{n}") for n, each in enumerate([first, second] * 3)]

        await asyncio.gather(erase(), *sessions("s"))
        names = await asyncio.gather(*sessions("t"))
        for state in await states():
            assert {name: state[name] for name in names} == dict.fromkeys(names, 9)
        await second.close()


async def test_a_call_awaiting_confirmation_stays_whole():
    with foldlog.open("memory:", condenser=STRATEGIES["cleared"]) as histories:
        service = FoldlogSessionService(histories, condense=True)
        session = await service.create_session(**S)
        for number in range(8):
            name = f"c{number}"
            question = event_of(content=reply([("measure", name, {"unit": "km" * 400})]))
            answer = change(
                requested_tool_confirmations={} if number else {name: ToolConfirmation()}
            )
            result = types.FunctionResponse(id=name, name="measure", response={"result": "9 km"})
            answer.content = types.Content(
                role="user", parts=[types.Part(function_response=result)]
            )
            for event in (question, answer):
                await service.append_event(session, event)
        pairs = zip(session.events, await events_of(service), strict=True)
        assert [held.content == stored.content for held, stored in pairs][:3] == [True, True, False]


@pytest.mark.parametrize("answer", [{"confirmed": True}, {"response": '{"confirmed": false}'}])
async def test_approvals_are_events_of_their_call(service, answer):
    await service.create_session(**S)
    paid = []

    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    tools = [FunctionTool(pay, require_confirmation=True)]
    model = scripted(lambda number: "finished" if number else [("pay", "c1", {"euros": 5})])
    calls = [
        each
        for event in await run(service, model, "go", tools)
        for each in event.get_function_calls()
    ]
    *_, request = (each for each in calls if each.name == "adk_request_confirmation")
    response = types.FunctionResponse(id=request.id, name=request.name, response=answer)
    await run(service, model, types.Part(function_response=response), tools)
    history = service.histories.sync[service.conversation(*S.values())]
    (question, decision) = approvals_of(history)["c1"]
    assert (question["asked"], question["shown"]["arguments"]) == ("u", {"euros": 5})
    assert decision == decided(answer == {"confirmed": True}, by="u")
    assert paid == [5] * decision["approved"]


async def test_a_deleted_session_is_erased_and_begins_again(service, histories):
    await talk(service, 2)
    history = history_of(service)
    attributes = {"runtime": "google-adk", "app": "a", "user": "u"}
    assert history.attributes() == attributes, "retention finds the session by these attributes"
    await service.delete_session(**S)
    assert await service.get_session(**S) is None
    assert history.id not in histories
    assert [event.id for event in (await talk(service)).events] == ["e0"] == await ids_of(service)


async def test_events_of_others_make_a_session_stale(service):
    session = await talk(service)
    other = await service.get_session(**S)
    await service.append_event(session, event_of(id="x"))
    with pytest.raises(StaleSessionError, match="session 's' was updated at"):
        await service.append_event(other, event_of(id="y"))
    assert await ids_of(service) == ["e0", "x"]


async def test_older_event_of_another_machine_makes_a_session_stale(service):
    session = await talk(service)
    other = await service.get_session(**S)
    await service.append_event(session, event_of(id="x", timestamp=session.last_update_time - 5))
    with pytest.raises(StaleSessionError):
        await service.append_event(other, event_of(id="y"))
    await service.append_event(session, event_of(id="z"))
    assert await ids_of(service) == ["x", "e0", "z"]


async def test_tasks_append_to_one_session_object(service):
    session = await talk(service)
    events = [event_of(id=f"x{number}") for number in range(9)]
    await asyncio.gather(*[service.append_event(session, event) for event in events])
    expected = ["e0", *(event.id for event in events)]
    assert await ids_of(service) == [event.id for event in session.events] == expected


async def test_second_append_records_an_approval(service, monkeypatch):
    session = await talk(service)
    asked = {"originalFunctionCall": {"id": "c1", "name": "pay", "args": {}}}
    calls = [types.FunctionCall(id="c1", name="pay", args={})]
    calls.append(types.FunctionCall(id="c2", name="adk_request_confirmation", args=asked))
    parts = [types.Part(function_call=call) for call in calls]
    event = event_of(id="x", content=types.Content(role="model", parts=parts))
    fail_next_call(monkeypatch, google_adk, "record_approvals")
    with pytest.raises(StoreUnavailable):
        await service.append_event(session, event)
    await service.append_event(session, event)
    assert await ids_of(service) == ["e0", "x"]
    assert [*approvals_of(history_of(service))] == ["c1"]


async def test_an_event_delivered_twice_is_stored_once(service):
    session = await talk(service)
    event = any_event(random.Random(7), 1)
    event.timestamp = session.last_update_time
    late = await service.get_session(**S)
    for number in range(3):
        await service.append_event(session, event.model_copy(deep=True))
        await talk(service, number)  # another program goes on
    await service.append_event(late, event.model_copy(deep=True))
    for each in (session, late):
        assert [held.id for held in each.events] == ["e0", "e1"]
    assert await ids_of(service) == [f"e{number}" for number in range(5)]


async def test_an_append_after_a_simultaneous_one_is_stale(service, monkeypatch):
    session = await talk(service)

    def append_first():
        """Append as another task, in the thread that is about to append."""
        asyncio.run(talk(service))

    before_next_call(monkeypatch, HistoryRecorder, "decode_all", append_first)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, event_of(id="x"))
    assert await ids_of(service) == ["e0", "e1"]


async def test_a_copy_leaves_out_a_session_that_begins_meanwhile(service, tmp_path, monkeypatch):
    theirs = SqliteSessionService(str(tmp_path / "theirs.db"))
    await theirs.create_session(**S)

    def begin_first():
        asyncio.run(service.create_session(**S))

    before_next_call(monkeypatch, HistoryRecorder, "decode_all", begin_first)
    assert await service.copy_from(theirs, app_name="a") == 0


async def test_a_copy_has_all_sessions_and_states(service, tmp_path):
    theirs = SqliteSessionService(str(tmp_path / "theirs.db"))
    choice = random.Random(4)
    sessions = [{**S, "user_id": user, "session_id": name} for user in "uv" for name in "st"]
    for names in sessions:
        session = await theirs.create_session(**names, state={"app:n": names["session_id"]})
        for number in range(12):
            event = any_event(choice, number, plain=True)
            event.timestamp = session.last_update_time + 1
            await theirs.append_event(session, event)
    assert await service.copy_from(theirs, app_name="a") == 4
    assert await service.copy_from(theirs, app_name="a") == 0
    ours_all, theirs_all = [
        [(await each.list_sessions(app_name="a")).sessions]
        + [await each.get_session(**names) for names in sessions]
        for each in (service, theirs)
    ]
    assert as_json(ours_all) == as_json(theirs_all)


class TestKeeps(Lists, Condenses):
    runtime = "adk"

    def opened(self, url, **options):
        return FoldlogSessionService(url, condense=self.condense, **options)

    async def add(self, store, *names):
        while True:
            session = await store.get_session(**S) or await store.create_session(**S)
            actions = EventActions(state_delta=dict.fromkeys(KEYS, names[-1]))
            with suppress(StaleSessionError):
                await store.append_event(session, event_of(id=" ".join(names), actions=actions))
                return

    async def names(self, store):
        session = await store.get_session(**S)
        names = [name for event in session.events for name in event.id.split()]
        assert session.state == dict.fromkeys(KEYS, names[-1])
        return names

    async def listed(self, store):
        sessions = (await store.list_sessions(app_name="a")).sessions
        for session in sessions:
            assert session.state["k"] == int(session.id.removeprefix("c")) + session.state["user:k"]
        return sessions

    async def add_to(self, store, name):
        """Each time that a session goes on, its user's state takes from it: what is listed is of
        one moment.
        """
        number = int(name.removeprefix("c"))
        names = {"app_name": "a", "user_id": f"u{number}", "session_id": name}
        session = await store.get_session(**names)
        if session is None:
            session = await store.create_session(**names, state={"k": number, "user:k": 0})
        delta = {key: session.state[key] - 1 for key in ("k", "user:k")}
        await store.append_event(session, change(state_delta=delta))

    def model(self, script):
        return scripted(script, usage=USAGE)

    async def run(self, store, model, prompt, *tools):
        if await store.get_session(**S) is None:
            await store.create_session(**S, state=dict.fromkeys(KEYS, 1))
        await run(store, model, prompt, tools)

    def texts(self, prompt):
        def text(part):
            called = part.function_call
            result = part.function_response
            if not result:
                return called.args if called else part.text
            (value,) = result.response.values()
            whole = json.dumps(result.response, ensure_ascii=False)
            return whole if value[:1].isdigit() else value  # what stands there

        return [text(part) for content in prompt for part in content.parts]

    def parts(self, prompt):
        return sent(prompt)

    async def stored_parts(self, store):
        return sent([event.content for event in (await store.get_session(**S)).events])


# -- runs


def measure(unit: str) -> dict:
    """Measure."""
    return {"result": f"9 {unit}"}


async def run(service, model, prompt, tools=(measure,), **settings):
    agent = LlmAgent(
        name="agent",
        model=model,
        tools=list(tools),
        before_tool_callback=service.before_tool_callback,
        **settings,
    )
    runner = Runner(agent=agent, app_name="a", session_service=service)
    part = types.Part(text=prompt) if isinstance(prompt, str) else prompt
    message = types.Content(role="user", parts=[part])
    return [
        event async for event in runner.run_async(user_id="u", session_id="s", new_message=message)
    ]


def shown(view):
    """Return what a View shows, in the form of ``sent``."""
    kinds = {"Action": "call", "Observation": "result"}
    parts = [(kinds.get(type(event).__name__), event) for event in view]
    return [(kind, event.tool) if kind else event.content for kind, event in parts]


def sent(contents):
    """Return what a request says, part by part."""

    def what(part):
        for kind, each in (("call", part.function_call), ("result", part.function_response)):
            if each:
                return kind, each.name
        return part.text

    return [what(part) for content in contents for part in content.parts]


NEVER = {"compaction_interval": 1_000, "overlap_size": 0}
OFTEN = {"compaction_interval": 2, "overlap_size": 0}


@pytest.mark.parametrize(
    "url, seed, condenses, compaction",
    [
        ("memory", "interval", False, OFTEN),
        ("sqlite", "overlap", False, {"compaction_interval": 3, "overlap_size": 1}),
        ("postgres", "tokens", False, {**NEVER, "token_threshold": 100, "event_retention_size": 5}),
        ("sqlite", "foldlog", True, NEVER),
        ("memory", "both", True, OFTEN),
    ],
    indirect=["url"],
)
async def test_the_view_equals_prompts_after_rewinds_and_compactions(
    url, seed, condenses, compaction
):
    with foldlog.open(url, condenser=STRATEGIES["digest"]) as histories:
        service = FoldlogSessionService(histories, condense=condenses)
        await _compare(service, random.Random(seed), condenses, compaction)


async def _compare(service, choice, condenses, compaction):
    requests = []
    compared = []

    def script(number):
        compared.append((shown(history.view()), sent(model.prompts[-1])))
        if choice.random() < 0.5:
            return f"answer {number}"
        many = range(choice.choice([1, 2]))
        return [("measure", f"c{number}-{n}", {"unit": "km"}) for n in many]

    def summarize(number):
        requests.append(number)
        return f"summary {number}"

    model = scripted(script)
    summarizer = LlmEventSummarizer(llm=scripted(summarize))
    config = EventsCompactionConfig(summarizer=summarizer, **compaction)
    agent = LlmAgent(name="agent", model=model, tools=[measure])
    app = App(name="a", root_agent=agent, events_compaction_config=config)
    runner = Runner(app=app, session_service=service)
    session = {"user_id": "u", "session_id": "s"}
    await service.create_session(**S)
    history = history_of(service)
    rewinds = 0
    while len(compared) < 200:
        turn = types.Content(role="user", parts=[types.Part(text=f"turn {len(compared)}")])
        events = [event async for event in runner.run_async(**session, new_message=turn)]
        if choice.random() < 0.25:
            recent = [*(await events_of(service))[-12:], *events]
            before = choice.choice(recent).invocation_id
            await runner.rewind_async(**session, rewind_before_invocation_id=before)
            rewinds += 1
    for ours, theirs in compared:
        assert ours == theirs
    if condenses:
        assert max(len(theirs) for _, theirs in compared) < 24
        assert len(condensations(history)) > len(requests) + 2
    assert len(requests) > 5 or (condenses and compaction is NEVER)
    assert rewinds > 5
    records = list(history.export())
    assert len(records) == len(await events_of(service))
    assert shown(View.from_events(list(decode(records, "google-adk")))) == shown(history.view()), (
        "an import of all records gives the same View"
    )
    await _compare_recent(service)
    for event in choice.sample([each for each in history.events() if can_be_redacted(each)], 30):
        history.redact(event.id, reason="asked to", with_summaries=True)
    await _compare_recent(service)


async def _compare_recent(service):
    """The newest events are the last of all, whatever they are and whatever of them is redacted."""
    stored = await events_of(service)
    assert any(event.actions.compaction for event in stored)
    for count in (1, 20, len(stored)):
        recent = await service.get_session(**S, config=GetSessionConfig(num_recent_events=count))
        assert recent.events == stored[-count:]
        assert recent.last_update_time == stored[-1].timestamp


async def test_a_forks_state_loses_redacted_values(service, monkeypatch):
    session = await service.create_session(**S, state={"flower": "marigold"})
    await service.append_event(session, event_of(content=said("x")))
    original = history_of(service)
    original.fork(id=service.conversation("a", "u", "t"))
    names = {**S, "session_id": "t"}
    fork = await service.get_session(**names)
    before_next_call(monkeypatch, service, "_write", lambda: original.redact(0, reason="asked to"))
    await service.append_event(fork, change(state_delta={"color": "blue"}))
    assert (await service.get_session(**names)).state == {"color": "blue"}


async def test_a_users_forked_state_loses_redacted_values(service, monkeypatch):
    await service.create_session(**S, state={"user:flower": "marigold"})
    original = service.histories.sync[service.conversation("a", "u")]
    original.fork(id=service.conversation("a", "v"))
    session = await service.create_session(**{**S, "user_id": "v"})
    redact = lambda: original.redact(0, reason="asked to")  # noqa: E731
    before_next_call(monkeypatch, Documents, "prepare", redact)
    await service.append_event(session, change(state_delta={"user:color": "blue"}))
    assert await service.get_user_state(app_name="a", user_id="v") == {"color": "blue"}


async def test_a_session_deleted_while_read_is_absent(service, histories, monkeypatch):
    def delete_in_between(*names):
        erase = partial(histories.erase, service.conversation(*names), reason="asked to")
        before_next_call(monkeypatch, service, "_updated_at", erase)

    for name in "stuv":
        session = await service.create_session(**{**S, "session_id": name})
    delete_in_between("a", "u", "s")
    listed = await service.list_sessions(app_name="a")
    assert [each.id for each in listed.sessions] == ["t", "u", "v"]
    delete_in_between("a", "u", "t")
    assert await service.get_session(**{**S, "session_id": "t"}) is None
    delete_in_between("a", "u", "v")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event_of())


def forget_two_events(service, monkeypatch, meanwhile):
    """Let a service forget two events of a View without redacted events, while something
    happens to them.
    """

    def preview(view):
        if any(event.redacted for event in view):
            return view, ()
        forgotten = [event.id for event in view.events[:2]]
        meanwhile(forgotten)
        action = CondensationAction(
            forgotten_event_ids=forgotten, summary="marigold", summary_offset=0
        )
        return Condensation(action), ()

    monkeypatch.setattr(service.histories.sync._handler, "preview", preview)


async def test_a_compaction_with_redacted_text_is_not_stored(histories, monkeypatch):
    service = FoldlogSessionService(histories, condense=True)
    session = await talk(service, 3)
    history = history_of(service)
    redact = lambda forgotten: history.redact(forgotten[0], reason="asked to")  # noqa: E731
    forget_two_events(service, monkeypatch, redact)
    await service.append_event(session, event_of(content=said("4")))
    assert [event.actions.compaction for event in await events_of(service)] == [None] * 4


async def test_an_append_during_a_compaction_loses_nothing(histories, monkeypatch):
    service = FoldlogSessionService(histories, condense=True)
    session = await talk(service, 3)
    other = FoldlogSessionService(histories)
    forget_two_events(service, monkeypatch, lambda _: asyncio.run(talk(other)))
    await service.append_event(session, event_of(id="x", content=said("x")))
    assert (await ids_of(service))[-2:] == ["x", "e4"]


async def test_a_compaction_within_another_changes_nothing(service):
    session = await talk(service, 3)
    times = [event.timestamp for event in session.events]

    async def compact(first, last, text):
        compaction = EventCompaction(
            start_timestamp=first, end_timestamp=last, compacted_content=said(text)
        )
        await service.append_event(session, change(compaction=compaction))

    history = history_of(service)
    await compact(times[0], times[1], "both")
    await compact(times[1], times[1], "one")
    assert shown(history.view()) == ["both", "2"]
    await compact(times[0], times[2], "all")
    assert shown(history.view()) == ["all"]


async def test_exports_are_readable_and_views_show_images(histories):
    image = {"data": IMAGE, "mime_type": "image/png"}
    shown = types.Part.from_bytes(**image)
    of_result = types.FunctionResponsePart.from_bytes(**image)
    thought = types.Part(text="hm", thought=True, thought_signature=IMAGE)
    answered = types.FunctionResponse(
        id="c1", name="look", response={"result": "see"}, parts=[of_result]
    )
    parts = [[shown], [thought, call("look", "c1")], [types.Part(function_response=answered)]]
    events = [event_of(content=types.Content(role="user", parts=part)) for part in parts]
    service = FoldlogSessionService(histories)
    session = await service.create_session(**S)
    for event in events:
        await service.append_event(session, event)
    saved = history_of(service).export()
    assert [Event.model_validate_json(json.dumps(each)) for each in saved] == events
    written = ",".join(event.model_dump_json(exclude_none=True) for event in events)
    check_import(histories, "google-adk", f"[{written}]", 2)


async def test_a_reply_names_its_request(service):
    model = scripted(lambda number: "9 km" if number else [("measure", "c", {"unit": "km"})])
    await service.create_session(**S)
    asked = {"instruction": "You measure.", "before_model_callback": service.before_model_callback}
    await run(service, model, "measure", **asked)
    for each in check_requests(history_of(service)):
        assert [*each.request.tools[0]["function"]["parameters"]["properties"]] == ["unit"]
