"""``FoldlogSessionService``: equal to the SDK's own SQLite service, exact, and what runs do with
it.
"""

import asyncio
import json
import random
import sqlite3
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

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
from foldlog.adapters.google_adk import FoldlogSessionService
from foldlog.condensers import Condensation
from foldlog.eventstore import CondensationAction, Documents
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
    ScriptedModel,
    any_event,
    any_state,
    call,
    reply,
    said,
)
from tests.between import before_next_call

pytestmark = [
    pytest.mark.anyio,
    # The releases of OpenTelemetry that the older SDK takes read entry points in a way that Python
    # 3.11 warns of.
    pytest.mark.filterwarnings("ignore:SelectableGroups dict interface:DeprecationWarning"),
    # The SDK says once in a process which of its own features are experimental.
    pytest.mark.filterwarnings(r"ignore:\[EXPERIMENTAL\]:UserWarning"),
]
ROOT = Path(__file__).parents[3]
S = {"app_name": "a", "user_id": "u", "session_id": "s"}


@pytest.fixture
def service(histories):
    return FoldlogSessionService(histories)


async def events_of(service):
    return (await service.get_session(**S)).events


async def ids_of(service):
    return [event.id for event in await events_of(service)]


def exact(value):
    """Return a text that differs where a value or a type differs."""
    if isinstance(value, list):
        return [exact(each) for each in value]
    dump = getattr(value, "model_dump", None)
    return repr(value if dump is None else dump(mode="python"))


async def outcome(work):
    try:
        return await work
    except (AlreadyExistsError, SessionNotFoundError, StaleSessionError) as error:
        return type(error)


async def erase_state(service, *names):
    """Erase the state of an app, or of a user of it."""
    if isinstance(service, FoldlogSessionService):
        with suppress(foldlog.ConversationNotFound):
            service.histories.sync.erase(service.conversation(*names), reason="asked to")
        return
    where = (
        "user_states WHERE app_name = ? AND user_id = ?"
        if names[1:]
        else "app_states WHERE app_name = ?"
    )
    with closing(sqlite3.connect(service._db_path)) as database, database:
        database.execute(f"DELETE FROM {where}", names)


def random_operation(choice, number):
    """Return something to do with a service: the same with each that it is given, and with the
    sessions that it has.
    """
    names = {"app_name": choice.choice(["a", "b/ü"]), "user_id": choice.choice(["u", "v w"])}
    session_id = choice.choice(["s", "t", " s ", "x/y"])
    key = (*names.values(), session_id)
    what, state, seed = choice.random(), any_state(choice), choice.random()
    shared_by = choice.choice([("app_name",), ("app_name", "user_id")])
    config = GetSessionConfig(
        num_recent_events=choice.choice([None, 0, 1, 3]),
        after_timestamp=choice.choice([None, 0.0, 1050.0]),
    )

    async def operate(service, held):
        if what < 0.12:
            return await service.create_session(state=dict(state), session_id=session_id, **names)
        if what < 0.6 and key in held:
            event = any_event(random.Random(seed), number, plain=True)
            appended = await outcome(service.append_event(held[key], event))
            return [appended, held[key].state, held[key].last_update_time]
        if what < 0.85:
            session = await service.get_session(session_id=session_id, config=config, **names)
            if session is not None:
                held[key] = session
            return session
        if what < 0.9:
            return (await service.list_sessions(**names)).sessions
        if what < 0.94:
            return (await service.list_sessions(app_name=names["app_name"])).sessions
        if what < 0.96:
            return await service.get_user_state(**names)
        if what < 0.98:
            return await erase_state(service, *(names[each] for each in shared_by))
        return await service.delete_session(session_id=session_id, **names)

    return operate


@pytest.mark.parametrize("seed", range(2))
async def test_random_operations_are_what_the_sdks_sqlite_service_does(service, tmp_path, seed):
    choice, theirs = random.Random(seed), SqliteSessionService(str(tmp_path / "theirs.db"))
    ours_held, theirs_held, number, appended = {}, {}, 0, 0
    platform_time.set_time_provider(lambda: 900.0 + number)
    try:
        for number in range(150):
            operate = random_operation(choice, number)
            answer, expected = (
                await outcome(operate(service, ours_held)),
                await outcome(operate(theirs, theirs_held)),
            )
            assert as_json(answer) == as_json(expected)
            appended += (
                isinstance(answer, list) and answer[:1] != [] and isinstance(answer[0], Event)
            )
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
        event = Event(id=f"e{number}", invocation_id="i", author="user", content=said(str(number)))
        await service.append_event(session, event)
    return session


async def test_events_and_states_come_back_as_they_were_after_a_fresh_open(file_url):
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
        assert {key: repr(value) for key, value in loaded.state.items()} == {
            key: repr(held[key]) for key in held
        }
        recent = await service.get_session(**S, config=GetSessionConfig(num_recent_events=7))
        assert exact(recent.events) == exact(events[-7:])
        assert recent.state == loaded.state
        after = await service.get_session(
            **S, config=GetSessionConfig(after_timestamp=events[100].timestamp)
        )
        assert after.events == [
            event for event in events if event.timestamp >= events[100].timestamp
        ]


@pytest.mark.parametrize("killed_at", ["adk/a/u/s", "adk/a/u/+state", "adk/a/+state"])
async def test_an_event_is_stored_with_its_changes_of_shared_states_or_not_at_all(
    service, monkeypatch, killed_at
):
    session = await service.create_session(**S, state=dict.fromkeys(("k", "user:k", "app:k"), 1))
    delta, append = dict.fromkeys(("k", "user:k", "app:k"), 2), Appending.__call__
    event = Event(
        id="e", author="agent", invocation_id="i", actions=EventActions(state_delta=delta)
    )

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
async def test_a_shared_state_that_was_erased_holds_only_what_came_after(service, scope, names):
    for session_id, value, expected in (("s", "old", {}), ("t", "new", {f"{scope}:k": "new"})):
        session = await service.create_session(**{**S, "session_id": session_id})
        actions = EventActions(state_delta={f"{scope}:k": value})
        await service.append_event(
            session, Event(author="agent", invocation_id="i", actions=actions)
        )
        if value == "old":
            await erase_state(service, *names)
        for each in (await service.list_sessions(app_name="a")).sessions:
            assert (
                (await service.get_session(**{**S, "session_id": each.id})).state
                == expected
                == each.state
            )


async def test_sessions_that_run_at_once_change_shared_states_and_bring_nothing_erased_back(url):
    async with FoldlogSessionService(url) as first:
        second = FoldlogSessionService(first.histories if url == "memory:" else url)

        async def work(service, name):
            session = await service.create_session(app_name="a", user_id="u", session_id=name)
            for number in range(10):
                delta = {f"{scope}:{name}": number for scope in ("app", "user")}
                event = Event(
                    author="agent", invocation_id="i", actions=EventActions(state_delta=delta)
                )
                await service.append_event(session, event)
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

        await asyncio.gather(
            erase(), *(work(each, f"s{n}") for n, each in enumerate([first, second] * 3))
        )
        names = await asyncio.gather(
            *(work(each, f"t{n}") for n, each in enumerate([first, second] * 3))
        )
        for state in await states():
            assert {name: state[name] for name in names} == dict.fromkeys(names, 9)
        await second.close()


async def test_a_call_that_waits_for_a_confirmation_stays_whole_in_the_session_that_runs():
    with foldlog.open("memory:", condenser=STRATEGIES["cleared"]) as histories:
        service = FoldlogSessionService(histories, condense=True)
        session = await service.create_session(**S)
        for number in range(8):
            parts = [call("measure", f"c{number}", unit="km" * 400)]
            result = types.FunctionResponse(
                id=f"c{number}", name="measure", response={"result": "9 km"}
            )
            confirmation = EventActions(
                requested_tool_confirmations={} if number else {"c0": ToolConfirmation()}
            )
            answer = types.Content(role="user", parts=[types.Part(function_response=result)])
            for content, actions in (
                (types.Content(role="model", parts=parts), EventActions()),
                (answer, confirmation),
            ):
                event = Event(author="agent", invocation_id="i", content=content, actions=actions)
                await service.append_event(session, event)
        stored = await events_of(service)
        whole = [
            event.content == copy.content
            for event, copy in zip(session.events, stored, strict=True)
        ]
        assert whole[:3] == [True, True, False]


@pytest.mark.parametrize("answer", [{"confirmed": True}, {"response": '{"confirmed": false}'}])
async def test_who_was_asked_and_who_decided_are_events_of_the_call(service, answer):
    await service.create_session(**S)

    def script(contents, number):
        return said("finished") if number else types.Content(role="model", parts=[CALL])

    paid = []

    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    tools, model = (
        [FunctionTool(pay, require_confirmation=True)],
        ScriptedModel(script=script, prompts=[]),
    )
    *_, asked_event = [
        event
        for event in await run(service, model, "go", tools)
        if any(each.name == "adk_request_confirmation" for each in event.get_function_calls())
    ]
    (request,) = asked_event.get_function_calls()
    response = types.FunctionResponse(id=request.id, name=request.name, response=answer)
    await run(service, model, types.Part(function_response=response), tools)
    history = service.histories.sync[service.conversation(*S.values())]
    (question, decision) = approvals_of(history)["c1"]
    assert (question["asked"], question["shown"]["arguments"]) == ("u", {"euros": 5})
    assert decision == decided(answer == {"confirmed": True}, by="u")
    assert paid == [5] * decision["approved"]


CALL = call("pay", "c1", euros=5)


async def test_a_deleted_session_is_erased_and_its_id_is_used_again(service, histories):
    await talk(service, 2)
    attributes = history_of(service).attributes()
    assert attributes == {
        "runtime": "google-adk",
        "app": "a",
        "user": "u",
    }, "by which retention finds it"
    await service.delete_session(**S)
    assert await service.get_session(**S) is None
    assert histories.store.conversation(service.conversation("a", "u", "s")).erased_at is not None
    assert [event.id for event in (await talk(service, 1)).events] == ["e0"]
    assert await ids_of(service) == ["e0"]


async def test_another_process_makes_a_session_stale(service):
    session, other = await talk(service, 1), await service.get_session(**S)
    await service.append_event(session, Event(id="x", author="user", invocation_id="i"))
    with pytest.raises(StaleSessionError, match="session 's' was updated at"):
        await service.append_event(other, Event(id="y", author="user", invocation_id="i"))
    assert await ids_of(service) == ["e0", "x"]


async def test_an_event_that_is_delivered_again_is_stored_once(service):
    session = await talk(service, 1)
    event = any_event(random.Random(7), 1)
    event.timestamp = session.last_update_time
    late = await service.get_session(**S)
    for number in range(3):
        await service.append_event(session, event.model_copy(deep=True))
        await talk(service, number)  # another program goes on
    await service.append_event(late, event.model_copy(deep=True))
    for each in (session, late):
        assert [stored_event.id for stored_event in each.events] == ["e0", "e1"]
    ids = await ids_of(service)
    assert ids == [f"e{number}" for number in range(5)]


async def test_an_append_that_another_one_precedes_after_its_look_is_stale(service, monkeypatch):
    session = await talk(service, 1)
    # in the thread that appends: another task appends first
    append = lambda: asyncio.run(talk(service, 1))  # noqa: E731
    before_next_call(monkeypatch, HistoryRecorder, "decode_all", append)
    with pytest.raises(StaleSessionError):
        await service.append_event(session, Event(id="x", author="user", invocation_id="i"))
    assert await ids_of(service) == ["e0", "e1"]


async def test_a_copy_of_another_service_has_its_sessions_and_states(service, tmp_path):
    theirs, choice = SqliteSessionService(str(tmp_path / "theirs.db")), random.Random(4)
    for user in ("u", "v"):
        for name in ("s", "t"):
            session = await theirs.create_session(
                app_name="a", user_id=user, session_id=name, state={"app:n": name}
            )
            for number in range(12):
                event = any_event(choice, number, plain=True)
                event.timestamp = session.last_update_time + 1
                await theirs.append_event(session, event)
    assert await service.copy_from(theirs, app_name="a") == 4
    assert await service.copy_from(theirs, app_name="a") == 0
    for user in ("u", "v"):
        for name in ("s", "t"):
            names = {"app_name": "a", "user_id": user, "session_id": name}
            assert as_json(await service.get_session(**names)) == as_json(
                await theirs.get_session(**names)
            )
    assert as_json((await service.list_sessions(app_name="a")).sessions) == as_json(
        (await theirs.list_sessions(app_name="a")).sessions
    )


class TestKeeps(Lists, Condenses):
    runtime = "adk"

    def opened(self, url, **options):
        return FoldlogSessionService(url, condense=self.condense, **options)

    async def add(self, store, *names):
        while True:
            session = await store.get_session(**S) or await store.create_session(**S)
            actions = EventActions(
                state_delta={"k": names[-1], "user:k": names[-1], "app:k": names[-1]}
            )
            try:
                await store.append_event(
                    session,
                    Event(id=" ".join(names), author="user", invocation_id="i", actions=actions),
                )
            except StaleSessionError:
                continue
            return

    async def names(self, store):
        session = await store.get_session(**S)
        names = [name for event in session.events for name in event.id.split()]
        assert session.state == dict.fromkeys(("k", "user:k", "app:k"), names[-1])
        return names

    async def listed(self, store):
        sessions = (await store.list_sessions(app_name="a")).sessions
        for each in sessions:
            assert each.state["k"] == int(each.id.removeprefix("c")) + each.state["user:k"]
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
        delta = {"k": session.state["k"] - 1, "user:k": session.state["user:k"] - 1}
        await store.append_event(
            session,
            Event(author="user", invocation_id="i", actions=EventActions(state_delta=delta)),
        )

    def model(self, script):
        return ScriptedModel(
            script=lambda contents, number: reply(script(number)), prompts=[], usage=USAGE
        )

    async def run(self, store, model, prompt, *tools):
        if await store.get_session(**S) is None:
            await store.create_session(**S, state={"k": 1, "user:k": 2, "app:k": 3})
        await run(store, model, prompt, tools)

    def texts(self, prompt):
        def text(part):
            called, result = part.function_call, part.function_response
            if result:
                (value,) = result.response.values()
                return (
                    json.dumps(result.response, ensure_ascii=False)
                    if value[:1].isdigit()
                    else value
                )  # what stands there
            return called.args if called else part.text

        return [text(part) for content in prompt for part in content.parts]

    def parts(self, prompt):
        return sent(prompt)

    async def stored_parts(self, store):
        return sent([event.content for event in (await store.get_session(**S)).events])


# -- runs
# --------------------------------------------------------------------------------------------------


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
    """What a View shows, as ``sent``."""
    parts = {
        "Action": lambda event: ("call", event.tool),
        "Observation": lambda event: ("result", event.tool),
    }
    return [parts.get(type(event).__name__, lambda event: event.content)(event) for event in view]


def sent(contents):
    """What a request says, part by part."""
    parts = [part for content in contents for part in content.parts]
    calls = [("call", part.function_call.name) if part.function_call else None for part in parts]
    results = [
        ("result", part.function_response.name) if part.function_response else None
        for part in parts
    ]
    return [
        call or result or part.text
        for part, call, result in zip(parts, calls, results, strict=True)
    ]


@pytest.mark.parametrize(
    "url, compaction",
    [
        ("memory", "interval"),
        ("sqlite", "overlap"),
        ("postgres", "tokens"),
        ("sqlite", "foldlog"),
        ("memory", "both"),
    ],
    indirect=["url"],
)
async def test_the_view_is_what_the_model_is_sent_with_rewinds_and_compactions(url, compaction):
    condenses = compaction in ("foldlog", "both")
    with foldlog.open(
        url, condenser={"type": "digest", "max_size": 12, "keep_first": 1}
    ) as histories:
        await _compare(FoldlogSessionService(histories, condense=condenses), compaction)


async def _compare(service, compaction):
    choice, requests, compared = random.Random(compaction), [], []
    sizes = {"interval": (2, 0), "overlap": (3, 1), "both": (2, 0)}.get(compaction, (1_000, 0))
    tokens = {"token_threshold": 100, "event_retention_size": 5} if compaction == "tokens" else {}

    def script(contents, number):
        compared.append((shown(history.view()), sent(contents)))
        if choice.random() < 0.5:
            return said(f"answer {number}")
        calls = [call("measure", f"c{number}-{n}", unit="km") for n in range(choice.choice([1, 2]))]
        return types.Content(role="model", parts=calls)

    def summarize(contents, number):
        requests.append(contents)
        return said(f"summary {number}")

    model = ScriptedModel(script=script, prompts=[])
    summarizer = LlmEventSummarizer(llm=ScriptedModel(script=summarize, prompts=[]))
    config = EventsCompactionConfig(
        compaction_interval=sizes[0], overlap_size=sizes[1], summarizer=summarizer, **tokens
    )
    agent = LlmAgent(name="agent", model=model, tools=[measure])
    app = App(name="a", root_agent=agent, events_compaction_config=config)
    runner = Runner(app=app, session_service=service)
    await service.create_session(**S)
    history, rewinds = history_of(service), 0
    while len(compared) < 200:
        turn = types.Content(role="user", parts=[types.Part(text=f"turn {len(compared)}")])
        events = [
            event async for event in runner.run_async(user_id="u", session_id="s", new_message=turn)
        ]
        if choice.random() < 0.25:
            stored = await events_of(service)
            before = choice.choice([event.invocation_id for event in [*stored[-12:], *events]])
            await runner.rewind_async(
                user_id="u", session_id="s", rewind_before_invocation_id=before
            )
            rewinds += 1
    for ours, theirs in compared:
        assert ours == theirs
    if compaction in ("foldlog", "both"):
        assert max(len(theirs) for _, theirs in compared) < 24
        assert len(condensations(history)) > len(requests) + 2
    assert len(requests) > 5 or compaction == "foldlog"
    assert rewinds > 5
    stored = await events_of(service)
    assert len(list(history.export())) == len(stored)
    whole = list(decode(history.export(), "google-adk"))
    assert shown(View.from_events(whole)) == shown(history.view()), (
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


async def test_a_state_that_was_redacted_in_the_original_of_a_fork_stays_away(service, monkeypatch):
    session = await service.create_session(**S, state={"flower": "marigold"})
    await service.append_event(session, Event(author="user", invocation_id="1", content=said("x")))
    original = history_of(service)
    original.fork(id=service.conversation("a", "u", "t"))
    fork = await service.get_session(**{**S, "session_id": "t"})
    event = Event(
        author="user", invocation_id="2", actions=EventActions(state_delta={"color": "blue"})
    )
    before_next_call(monkeypatch, service, "_write", lambda: original.redact(0, reason="asked to"))
    await service.append_event(fork, event)
    assert (await service.get_session(**{**S, "session_id": "t"})).state == {"color": "blue"}


async def test_a_users_state_that_was_redacted_in_the_original_of_a_fork_stays_away(
    service, monkeypatch
):
    await service.create_session(**S, state={"user:flower": "marigold"})
    original = service.histories.sync[service.conversation("a", "u")]
    original.fork(id=service.conversation("a", "v"))
    session = await service.create_session(**{**S, "user_id": "v"})
    event = Event(
        author="user", invocation_id="1", actions=EventActions(state_delta={"user:color": "blue"})
    )
    redact = lambda: original.redact(0, reason="asked to")  # noqa: E731
    before_next_call(monkeypatch, Documents, "prepare", redact)
    await service.append_event(session, event)
    assert await service.get_user_state(app_name="a", user_id="v") == {"color": "blue"}


async def test_a_session_that_is_deleted_as_it_is_read_is_not_there(
    service, histories, monkeypatch
):
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
        await service.append_event(session, Event(author="user", invocation_id="1"))


def condenses(service, monkeypatch, meanwhile):
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


async def test_a_compaction_that_may_quote_a_redacted_event_is_not_stored(histories, monkeypatch):
    service = FoldlogSessionService(histories, condense=True)
    session = await talk(service, 3)
    history = history_of(service)
    condenses(
        service, monkeypatch, lambda forgotten: history.redact(forgotten[0], reason="asked to")
    )
    await service.append_event(session, Event(author="user", invocation_id="4", content=said("4")))
    events = await events_of(service)
    assert len(events) == 4
    assert not any(event.actions.compaction for event in events)


async def test_an_event_is_stored_although_another_program_appends_before_its_compaction(
    histories, monkeypatch
):
    service, other = (
        FoldlogSessionService(histories, condense=True),
        FoldlogSessionService(histories),
    )
    session = await talk(service, 3)

    async def append():
        event = Event(id="5", author="user", invocation_id="5", content=said("5"))
        await other.append_event(await other.get_session(**S), event)

    condenses(service, monkeypatch, lambda _: asyncio.run(append()))
    event = Event(id="4", author="user", invocation_id="4", content=said("4"))
    await service.append_event(session, event)
    assert (await ids_of(service))[-2:] == ["4", "5"]


async def test_a_compaction_within_the_times_of_an_earlier_one_changes_nothing(service):
    session = await talk(service, 3)
    times = [event.timestamp for event in session.events]

    async def compact(first, last, text):
        compaction = EventCompaction(
            start_timestamp=first, end_timestamp=last, compacted_content=said(text)
        )
        await service.append_event(
            session,
            Event(author="user", invocation_id=text, actions=EventActions(compaction=compaction)),
        )

    history = history_of(service)
    await compact(times[0], times[1], "both")
    await compact(times[1], times[1], "one")
    assert shown(history.view()) == ["both", "2"]
    await compact(times[0], times[2], "all")
    assert shown(history.view()) == ["all"]


async def test_the_sdk_reads_its_export_and_a_view_shows_its_images(histories):
    shown = types.Part.from_bytes(data=IMAGE, mime_type="image/png")
    of_result = types.FunctionResponsePart.from_bytes(data=IMAGE, mime_type="image/png")
    thought = types.Part(text="hm", thought=True, thought_signature=IMAGE)
    answered = types.FunctionResponse(
        id="c1", name="look", response={"result": "see"}, parts=[of_result]
    )
    parts = [[shown], [thought, call("look", "c1")], [types.Part(function_response=answered)]]
    events = [
        Event(author="user", invocation_id="i", content=types.Content(role="user", parts=each))
        for each in parts
    ]
    written = ",".join(event.model_dump_json(exclude_none=True) for event in events)
    check_import(histories, "google-adk", f"[{written}]", 2)
    service = FoldlogSessionService(histories)
    session = await service.create_session(app_name="a", user_id="u", session_id="s")
    for event in events:
        await service.append_event(session, event)
    saved = histories[service.conversation("a", "u", "s")]
    assert [Event.model_validate_json(json.dumps(each)) for each in saved.export()] == events


async def test_a_reply_names_its_request_with_the_tools_and_the_instructions(service):
    answers = [types.Content(role="model", parts=[call("measure", "c", unit="km")]), said("9 km")]
    model = ScriptedModel(script=lambda _, number: answers[number], prompts=[])
    await service.create_session(**S)
    asked = {"instruction": "You measure.", "before_model_callback": service.before_model_callback}
    await run(service, model, "measure", **asked)
    for each in check_requests(history_of(service)):
        assert [*each.request.tools[0]["function"]["parameters"]["properties"]] == ["unit"]
