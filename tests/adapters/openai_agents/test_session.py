"""``FoldlogSession``: equal to the SDK's own session, and what runs do with it."""

import asyncio
import json
import random
from datetime import UTC, datetime

import pytest
from agents import (
    Agent,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)

import foldlog
from foldlog.adapters import openai_agents
from foldlog.adapters._shared import shown_records
from foldlog.adapters.openai_agents import FoldlogSession
from foldlog.eventstore import ConversationErased
from foldlog.projections import well_formed
from tests.adapters.contract import (
    VALUES,
    Answers,
    Condenses,
    approvals_of,
    condensations,
    decided,
)
from tests.adapters.openai_agents.scripted import ScriptedModel, call, reasoning, replies, said
from tests.between import before_next_call

pytestmark = pytest.mark.anyio
set_tracing_disabled(True)

COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"}


@pytest.fixture
def session(histories):
    return FoldlogSession("s", histories)


def user(text):
    return {"role": "user", "content": text}


async def texts_of(session, limit=None):
    return [item["content"] for item in await session.get_items(limit)]


def any_item(choice):
    item = choice.choice(
        [
            user("hi"),
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "x", "annotations": []}],
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "done"},
            {"type": "reasoning", "id": "r", "summary": []},
            {"type": "web_search_call", "id": "w", "status": "completed"},
            # of the SDK's EncryptedSession
            {"__enc__": 1, "v": 1, "kid": "hkdf-v1", "payload": "gAAAA"},
        ]
    )
    for _ in range(choice.randrange(3)):
        item = {
            **item,
            choice.choice(
                ["id", "status", "content", "output", "x", "\x00", "\ud800"]
            ): choice.choice(VALUES),
        }
    return item


async def test_random_operations_are_what_the_sdks_own_session_does(histories, tmp_path):
    choice, theirs = random.Random(3), SQLiteSession("s", tmp_path / "theirs.db")
    session = FoldlogSession("s", histories)
    for _ in range(250):
        if choice.random() < 0.3:  # another process goes on
            session = FoldlogSession("s", histories)
        what = choice.random()
        if what < 0.55:
            items = [any_item(choice) for _ in range(choice.randrange(5))]
            await asyncio.gather(session.add_items(items), theirs.add_items(items))
        elif what < 0.75:
            assert repr(await session.pop_item()) == repr(await theirs.pop_item())
        elif what < 0.97:
            limit = choice.choice([None, -1, 0, 1, 3, 50])
            assert repr(await session.get_items(limit)) == repr(await theirs.get_items(limit))
        else:
            await session.clear_session()
            await theirs.clear_session()
            assert await session.get_items() == []
    assert repr(await session.get_items()) == repr(await theirs.get_items())
    theirs.close()


async def test_the_limit_of_the_settings_holds_where_none_is_given(histories):
    session = FoldlogSession("s", histories, session_settings=SessionSettings(limit=2))
    await session.add_items([user(str(n)) for n in range(5)])
    assert await texts_of(session) == ["3", "4"]
    assert await texts_of(session, 3) == ["2", "3", "4"]
    assert FoldlogSession("s", histories).session_settings == SessionSettings()
    assert FoldlogSession("s", histories, session_settings={"limit": 4}).session_settings.limit == 4
    with pytest.raises(
        TypeError, match=r"Unknown session settings: limitt; the settings are .*limit"
    ):
        FoldlogSession("s", histories, session_settings={"limitt": 4})


async def test_what_is_taken_back_stays_in_the_log(session, histories):
    await session.add_items([user(str(n)) for n in range(3)])
    assert await session.pop_item() == user("2")
    await session.clear_session()
    assert await session.pop_item() is None
    kinds = [type(event).__name__ for event in histories["openai-agents/s"].events()]
    assert kinds == ["Message"] * 3 + ["Retraction"] * 2
    histories["openai-agents/s"].retract(4)
    assert await texts_of(session) == ["0", "1"]


async def test_clearing_can_erase(histories):
    session = FoldlogSession("s", histories, clear="erase")
    await session.clear_session()
    await session.add_items([user("secret")])
    await session.clear_session()
    assert await session.get_items() == []
    assert histories.store.conversation("openai-agents/s").erased_at is not None
    await session.add_items([user("again")])
    assert await session.get_items() == [user("again")]
    other = FoldlogSession("s", histories)
    await other.add_items([user("more")])
    assert len(await session.get_items()) == 2
    await session.clear_session()
    with pytest.raises(ConversationErased):
        # it belongs to what was erased
        await other.add_items([user("late")])
    await FoldlogSession("s", histories).add_items([user("a new process")])
    assert await texts_of(session) == ["a new process"]
    assert "secret" not in str(list(histories["openai-agents/s"].events()))


async def test_a_session_that_was_erased_is_empty(histories):
    first, second = FoldlogSession("s", histories), FoldlogSession("s", histories)
    await first.add_items([user("secret")])
    assert len(await second.get_items()) == 1
    histories.erase("openai-agents/s", reason="asked for")
    for session in (
        first,
        second,
        FoldlogSession("s", histories),
        FoldlogSession("s", histories, clear="erase"),
    ):
        assert await session.get_items() == []
        assert await session.pop_item() is None
        await session.clear_session()
    await FoldlogSession("s", histories).add_items([user("a new session")])
    with pytest.raises(ConversationErased):
        await first.pop_item()  # it has not seen that item
    assert await texts_of(first) == ["a new session"]


async def test_a_session_of_the_sdk_is_copied_and_copied_on(histories, tmp_path):
    choice, path = random.Random(4), tmp_path / "theirs.db"
    for name in ("a", "b/c", "é \x01", "empty"):
        theirs, ours = SQLiteSession(name, path), FoldlogSession(name, histories)
        if name != "empty":
            await theirs.add_items([any_item(choice) for _ in range(30)])
        assert await ours.copy_from(theirs) == (0 if name == "empty" else 30)
        assert repr(await ours.get_items()) == repr(await theirs.get_items())
        assert repr(await ours.get_items(7)) == repr(await theirs.get_items(7))
        assert await ours.copy_from(theirs) == 0
        await theirs.add_items([user("more")])
        assert await ours.copy_from(theirs) == 1
        await ours.add_items([user("here")])
        await theirs.add_items([user("there")])
        items = await ours.get_items()
        with pytest.raises(ValueError, match="to copy do not begin with the same"):
            await ours.copy_from(theirs)
        assert await ours.get_items() == items
        theirs.close()


class TestKeeps(Answers, Condenses):
    runtime = "openai-agents"
    killed_parts = 0  # the SDK keeps a turn when its tools are done

    def opened(self, url, **options):
        return FoldlogSession("s", url, condense=self.condense, **options)

    async def add(self, store, *names):
        await store.add_items([user(name) for name in names])

    async def names(self, store):
        return await texts_of(store)

    def model(self, script):
        return ScriptedModel(lambda items, number: replies(script(number)))

    async def run(self, store, model, prompt, *tools):
        agent = store.with_effects(Agent(name="a", model=model, tools=[*map(function_tool, tools)]))
        config = RunConfig(call_model_input_filter=store.input_filter if self.condense else None)
        await Runner.run(
            agent, prompt, session=store, hooks=store.hooks, run_config=config, max_turns=50
        )

    def texts(self, prompt):
        def text(item):
            content = item.get("output", item.get("content"))
            if "arguments" in item:
                return json.loads(item["arguments"])
            return (
                content if isinstance(content, str) else "".join(part["text"] for part in content)
            )

        return [text(item) for item in prompt]

    def parts(self, prompt):
        return parts_of(prompt)

    async def stored_parts(self, store):
        return parts_of(await store.get_items())


# -- runs
# --------------------------------------------------------------------------------------------------


@function_tool
def measure(unit: str) -> str:
    """Measure."""
    return f"9 {unit}"


def steps(count):
    """A script of so many turns with tools before the last message."""

    def script(items, number):
        if number < count:
            calls = [
                call("measure", '{"unit": "km"}', f"c{number}-{n}") for n in range(1 + number % 2)
            ]
            for each in calls[:1]:
                each.id = f"{each.id}-r"
            return [reasoning(number), *calls]
        return [said("finished", number)]

    return script


def parts_of(items):
    """What items say, without the ids and states that the SDK leaves out or adds."""
    keys = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary")
    return [
        {"type": "message", **{key: item[key] for key in keys if key in item}} for item in items
    ]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_the_view_is_what_the_model_is_sent_over_random_steps(url):
    choice, compared, cleared = random.Random(9), [], 0
    with foldlog.open(
        url, condenser={"type": "digest", "max_size": 24, "keep_first": 1}
    ) as histories:
        session, history = (
            FoldlogSession("s", histories, condense=True),
            histories["openai-agents/s"],
        )

        def script(items, number):
            shown = shown_records(well_formed(history.view()), "openai-responses", history)
            view = [item for _, items_of in shown for item in items_of]
            compared.append((parts_of(view), parts_of(items)))
            if choice.random() < 0.3:
                return [said("fine", number)]
            calls = [
                call("measure", '{"unit": "km"}', f"c{number}-{n}")
                for n in range(choice.choice([1, 2]))
            ]
            return [reasoning(number), *calls]

        agent = Agent(name="a", model=ScriptedModel(script, items_max=40), tools=[measure])
        run = RunConfig(call_model_input_filter=session.input_filter)
        while len(compared) < 200:
            how = choice.random()
            if how < 0.2:
                while (item := await session.pop_item()) is not None and item.get("role") != "user":
                    continue
            elif how < 0.27 and compared:  # as OpenAIResponsesCompactionSession does
                await session.clear_session()
                compaction = {**COMPACTION, "id": f"cmp_{len(compared)}"}
                await session.add_items([user("kept"), compaction])
                cleared += 1
            await Runner.run(
                agent, f"turn {len(compared)}", session=session, run_config=run, max_turns=200
            )
        for view, items in compared:
            assert view == items
        assert cleared
        assert len(condensations(history)) > 5


@pytest.mark.parametrize("kept", [["one", "three"], ["three"], []])
async def test_a_session_that_the_sdk_compacts_is_condensed_and_not_taken_back(
    session, histories, kept
):
    """``OpenAIResponsesCompactionSession`` clears a session, and adds the compacted items."""
    reply = {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "content": [{"type": "output_text", "text": "two"}],
    }
    users = {text: user(text) for text in ("one", "three")}
    await session.add_items([users["one"], reply, users["three"]])
    await session.clear_session()
    items = [*(users[text] for text in kept), COMPACTION]
    await session.add_items(items)
    assert await session.get_items() == items
    history = histories[session.history.id]
    shown = [event.id for event in history.view()]
    assert shown[:-1] == [{"one": 0, "three": 2}[text] for text in kept], (
        "the items that stay are the same events"
    )
    assert "condensation" in history.why(1).reason
    reasons = [event.metadata["reason"] for event in condensations(history)]
    assert {*reasons} == {"the model's provider compacted the context"}
    assert len(reasons) == (1 if len(kept) == 2 else 2)
    assert [await session.pop_item() for _ in [*items, 0]] == [*items[::-1], None]


async def test_a_compaction_of_the_sdk_is_stored_although_another_program_appends_meanwhile(
    session, histories, monkeypatch
):
    await session.add_items([user("one"), user("two")])
    await session.clear_session()
    items = [user("two"), COMPACTION]
    other = histories[session.history.id]
    append = lambda: other.append_records([user("other")], format="openai-responses")  # noqa: E731
    before_next_call(monkeypatch, openai_agents, "staying", append)
    await session.add_items(items)
    assert await session.get_items() == [user("other"), *items]


async def compact(session, items):
    """Do what the SDK does when it has made a compaction: it reads the items again to restore them."""
    await session.get_items()
    await session.clear_session()
    await session.add_items(items)


def assert_redacted(history):
    assert "marigold" not in repr(list(history.events()))
    assert [event.content for event in history.view()] == ["[redacted]", "two"]


@pytest.mark.parametrize("name", ["get_items", "clear_session", "add_items", "staying"])
async def test_a_compaction_of_items_that_are_redacted_meanwhile_is_not_stored(
    session, histories, monkeypatch, name
):
    await session.add_items([user("marigold"), user("two")])
    items = [*await session.get_items(), COMPACTION]
    history = histories[session.history.id]
    redact = lambda: history.redact(0, reason="asked to")  # noqa: E731
    before_next_call(monkeypatch, openai_agents if name == "staying" else session, name, redact)
    await compact(session, items)
    assert_redacted(history)


async def test_a_compaction_of_items_redacted_meanwhile_is_not_stored(session, histories):
    """The SDK adds new items to the items that it has read, and does not read them again."""
    assert await session.get_items() == []
    items = [user("marigold"), user("two")]
    await session.add_items(items)
    history = histories[session.history.id]
    history.redact(0, reason="asked to")
    await compact(session, [*items, COMPACTION])
    assert_redacted(history)


async def test_a_compaction_of_redacted_items_is_not_stored_although_they_were_erased(histories):
    session = FoldlogSession("s", histories, clear="erase")
    await session.add_items([user("marigold"), user("two")])
    items = [*await session.get_items(), COMPACTION]
    histories[session.history.id].redact(0, reason="asked to")
    for _ in range(2):  # the SDK compacts the items again that it has in memory
        await compact(session, items)
        assert_redacted(histories[session.history.id])
    await session.add_items([user("three")])
    assert await texts_of(session) == ["[redacted]", "two", "three"]


async def test_a_compaction_of_redacted_items_is_not_stored_although_another_program_appends(
    session, histories
):
    await session.add_items([user("marigold"), user("two")])
    items = await session.get_items()
    history = histories[session.history.id]
    history.redact(0, reason="asked to")
    await session.clear_session()
    history.append_records([user("other")], format="openai-responses")
    await session.add_items([*items, COMPACTION])
    assert "marigold" not in repr(list(history.events()))
    assert [event.content for event in history.view()] == ["other", "[redacted]", "two"]


async def test_options_of_a_run_hand_over_all_of_the_session(histories):
    session = FoldlogSession("s", histories)
    agent = Agent(name="a", model=ScriptedModel(steps(1)), tools=[measure])
    await Runner.run(agent, "how far?", **session.run_options(RunConfig(workflow_name="w")))
    assert histories["openai-agents/s"].stats().models
    options = session.run_options(RunConfig(workflow_name="w"))
    assert options["run_config"].workflow_name == "w"
    with pytest.raises(ValueError, match="already has a call_model_input_filter"):
        session.run_options(options["run_config"])


@pytest.mark.parametrize("model, named", [("m", "m"), (None, "ScriptedModel")])
async def test_the_usage_of_each_call_is_recorded_on_its_day(session, histories, model, named):
    scripted = ScriptedModel(steps(2))
    if model:
        scripted.model = model
    agent = Agent(name="a", model=scripted, tools=[measure])
    await Runner.run(agent, "how far?", session=session, hooks=session.hooks)
    (figures,) = histories["openai-agents/s"].stats().models.values()
    assert (figures.model, figures.calls) == (named, 3)
    assert figures.day == datetime.now(UTC).date().isoformat()


async def test_the_filter_keeps_what_the_session_does_not_have_yet(histories):
    from agents.run import CallModelData, ModelInputData

    session = FoldlogSession("s", histories)
    await session.add_items([user(str(n)) for n in range(4)])
    items = [user(str(n)) for n in range(6)]
    data = CallModelData(
        model_data=ModelInputData(input=items, instructions="i"), agent=None, context=None
    )
    assert await session.input_filter(data) is data.model_data, "nothing was condensed"
    histories["openai-agents/s"].append(
        foldlog.CondensationAction(forgotten_event_ids=[0, 1], summary="before", summary_offset=0)
    )
    filtered = await session.input_filter(data)
    assert [item["content"] for item in filtered.input] == ["before", "2", "3", "4", "5"]
    assert filtered.instructions == "i"
    foreign = ModelInputData(input=[user("other")], instructions=None)
    assert (
        await session.input_filter(CallModelData(model_data=foreign, agent=None, context=None))
        is foreign
    )


async def test_calls_whose_reasoning_was_cleared_are_sent_without_their_ids():
    with foldlog.open("memory:", condenser={"type": "clear_thinking"}) as histories:
        turns = steps(99)
        model = ScriptedModel(
            lambda items, number: turns(items, number) if number % 4 < 3 else [said("fine", number)]
        )
        session = FoldlogSession("s", histories, condense=True)
        run = RunConfig(call_model_input_filter=session.input_filter)
        for prompt in ("how far?", "and back?"):
            await Runner.run(
                Agent(name="a", model=model, tools=[measure]),
                prompt,
                session=session,
                run_config=run,
            )
        cleared = [
            item
            for item in model.prompts[-1]
            if item.get("type") == "function_call" and "id" not in item
        ]
        assert len(cleared) == 4
        assert sum(item.get("type") == "reasoning" for item in model.prompts[-1]) == 3


@pytest.mark.parametrize("approved", [True, False])
async def test_who_was_asked_and_who_decided_are_events_of_the_call(session, approved):
    paid = []

    @function_tool(needs_approval=True)
    def pay(euros: int) -> str:
        """Pay."""
        paid.append(euros)
        return "paid"

    def script(items, number):
        return [said("finished")] if number else [call("pay", '{"euros": 5}', "c1")]

    agent = Agent("payer", tools=[pay], model=ScriptedModel(script))
    stopped = await Runner.run(agent, "go", session=session)
    await session.ask_approvals(stopped, to="ann")
    await session.ask_approvals(stopped, to="ann")
    state = stopped.to_state()
    await session.decide(state, stopped.interruptions[0], approved, by="ann", reason="a reason")
    await Runner.run(agent, state, session=session)
    assert paid == [5] * approved
    assert approvals_of(session.history.sync) == {
        "c1": [
            {"asked": "ann", "shown": {"tool": "pay", "arguments": '{"euros": 5}'}},
            decided(approved, by="ann", reason="a reason"),
        ]
    }
