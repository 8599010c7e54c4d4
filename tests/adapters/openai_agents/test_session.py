"""``FoldlogSession``: equal to the SDK's own session, and what runs do with it."""

import asyncio
import json
import random
from datetime import UTC, datetime
from functools import partial

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
from agents.run import CallModelData, ModelInputData

import foldlog
from foldlog import History
from foldlog.adapters import openai_agents
from foldlog.adapters._shared import shown_records
from foldlog.adapters.openai_agents import FoldlogSession
from foldlog.eventstore import ConversationErased
from foldlog.projections import well_formed
from tests.adapters.contract import (
    STRATEGIES,
    VALUES,
    Answers,
    Condenses,
    approvals_of,
    condensations,
    decided,
    holding,
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


def numbered(*numbers):
    return [user(str(number)) for number in range(*numbers)]


def history_of(session):
    return session.history.sync


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


async def test_random_operations_equal_the_sdks_session(histories, tmp_path):
    choice = random.Random(3)
    theirs = SQLiteSession("s", tmp_path / "theirs.db")
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


async def test_session_settings_set_the_default_limit(histories):
    session = FoldlogSession("s", histories, session_settings=SessionSettings(limit=2))
    await session.add_items(numbered(5))
    assert await texts_of(session) == ["3", "4"]
    assert await texts_of(session, 3) == ["2", "3", "4"]
    assert FoldlogSession("s", histories).session_settings == SessionSettings()
    assert FoldlogSession("s", histories, session_settings={"limit": 4}).session_settings.limit == 4
    with pytest.raises(
        TypeError, match=r"Unknown session settings: limitt; the settings are .*limit"
    ):
        FoldlogSession("s", histories, session_settings={"limitt": 4})


async def test_popped_items_stay_in_the_log(session):
    await session.add_items(numbered(3))
    assert await session.pop_item() == user("2")
    await session.clear_session()
    assert await session.pop_item() is None
    history = history_of(session)
    kinds = [type(event).__name__ for event in history.events()]
    assert kinds == ["Message"] * 3 + ["Retraction"] * 2
    history.retract(4)
    assert await texts_of(session) == ["0", "1"]


async def test_clearing_can_erase(histories):
    session = FoldlogSession("s", histories, clear="erase")
    await session.clear_session()
    await session.add_items([user("secret")])
    await session.clear_session()
    assert await session.get_items() == []
    assert "openai-agents/s" not in histories
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
    assert holding(history_of(session), "secret") == []


async def test_an_erased_session_is_empty(histories):
    first = FoldlogSession("s", histories)
    second = FoldlogSession("s", histories)
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


async def test_a_session_is_copied_and_copied_on(histories, tmp_path):
    choice = random.Random(4)
    path = tmp_path / "theirs.db"
    for name in ("a", "b/c", "é \x01", "empty"):
        theirs = SQLiteSession(name, path)
        ours = FoldlogSession(name, histories)
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


@pytest.mark.parametrize("copied_first, added", [(2, 1), (3, 0)])
async def test_two_copies_at_once_add_each_item_once(
    session, histories, monkeypatch, copied_first, added
):
    theirs = SQLiteSession("s")
    await theirs.add_items(numbered(3))
    other_copy = partial(
        histories[session.history.id].append_records,
        numbered(copied_first),
        format="openai-responses",
    )
    before_next_call(monkeypatch, History, "append_records", other_copy)
    assert await session.copy_from(theirs) == added
    assert await session.get_items() == numbered(3)
    theirs.close()


async def test_a_session_with_a_limit_is_copied_on(histories):
    theirs = SQLiteSession("s")
    await theirs.add_items(numbered(3))
    ours = FoldlogSession("s", histories, session_settings={"limit": 2})
    assert await ours.copy_from(theirs) == 3
    await theirs.add_items([user("more")])
    assert await ours.copy_from(theirs) == 1
    assert await texts_of(ours, 9) == ["0", "1", "2", "more"]
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


@function_tool
def measure(unit: str) -> str:
    """Measure."""
    return f"9 {unit}"


def measuring(model):
    return Agent(name="a", model=model, tools=[measure])


def steps(count):
    """Return a script of so many turns with tools before the last message."""

    def script(items, number):
        if number < count:
            first, *others = measures(number, 1 + number % 2)
            first.id = f"{first.id}-r"
            return [reasoning(number), first, *others]
        return [said("finished", number)]

    return script


def measures(number, count):
    return [call("measure", '{"unit": "km"}', f"c{number}-{n}") for n in range(count)]


def parts_of(items):
    """Return what items say, without the ids and states that the SDK leaves out or adds."""
    keys = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary")
    return [
        {"type": "message", **{key: item[key] for key in keys if key in item}} for item in items
    ]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_the_view_equals_the_prompt_of_random_steps(url):
    choice = random.Random(9)
    compared = []
    cleared = 0
    with foldlog.open(url, condenser=STRATEGIES["digest"]) as histories:
        session = FoldlogSession("s", histories, condense=True)
        history = history_of(session)

        def script(items, number):
            shown = shown_records(well_formed(history.view()), "openai-responses", history)
            view = [item for _, items_of in shown for item in items_of]
            compared.append((parts_of(view), parts_of(items)))
            if choice.random() < 0.3:
                return [said("fine", number)]
            return [reasoning(number), *measures(number, choice.choice([1, 2]))]

        agent = measuring(ScriptedModel(script, items_max=40))
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


async def test_items_of_a_turn_with_an_effect_are_taken_back_one_by_one(session):
    """The message that names the effect is no item of the SDK, which takes its own items back."""

    @foldlog.effect()
    def pay(to: str) -> str:
        return "receipt 7"

    model = ScriptedModel(
        lambda items, number: [said("paid")] if number else [call("pay", '{"to": "ann"}')]
    )
    agent = session.with_effects(Agent(name="a", model=model, tools=[function_tool(pay)]))
    await Runner.run(agent, "pay ann", session=session)
    items = await session.get_items()
    assert [item.get("type") for item in items] == [
        None,
        "function_call",
        "function_call_output",
        "message",
    ]
    for item in reversed(items):
        assert await session.pop_item() == item
    assert await session.pop_item() is None
    (notice,) = await texts_of(session)
    assert notice.startswith("Taken back, but it had run: pay")
    assert notice.endswith("receipt 7")


@pytest.mark.parametrize("kept", [["one", "three"], ["three"], []])
async def test_the_sdks_compaction_is_a_condensation(session, kept):
    """``OpenAIResponsesCompactionSession`` clears a session, and adds the compacted items."""
    users = {text: user(text) for text in ("one", "three")}
    await session.add_items([users["one"], said("two").model_dump(), users["three"]])
    await session.clear_session()
    items = [*(users[text] for text in kept), COMPACTION]
    await session.add_items(items)
    assert await session.get_items() == items
    history = history_of(session)
    shown = [event.id for event in history.view()]
    assert shown[:-1] == [{"one": 0, "three": 2}[text] for text in kept], (
        "the items that stay are the same events"
    )
    assert "condensation" in history.why(1).reason
    reasons = [event.metadata["reason"] for event in condensations(history)]
    assert reasons == ["the model's provider compacted the context"] * (1 if kept[1:] else 2)
    assert [await session.pop_item() for _ in [*items, 0]] == [*items[::-1], None]


async def test_a_compaction_keeps_all_its_fields(session):
    """A server may add fields, and what is null or empty is a field too."""
    first = {**COMPACTION, "created_by": "client", "status": "in_progress", "note": None}
    second = {"type": "compaction", "encrypted_content": "y", "id": None, "tags": []}
    await session.add_items([user("one"), said("two").model_dump(), first])
    assert await session.get_items() == [user("one"), first]
    await session.clear_session()
    await session.add_items([user("one"), second])
    assert await session.get_items() == [user("one"), second]
    sent = history_of(session).view().to_messages("responses")[-1]
    assert sent == {"type": "compaction", "encrypted_content": "y"}, "what a server accepts"


def append_other(session):
    history_of(session).append_records([user("other")], format="openai-responses")


async def test_a_compaction_is_stored_despite_another_append(session, monkeypatch):
    await session.add_items([user("one"), user("two")])
    await session.clear_session()
    items = [user("two"), COMPACTION]
    before_next_call(monkeypatch, openai_agents, "staying", partial(append_other, session))
    await session.add_items(items)
    assert await session.get_items() == [user("other"), *items]


async def compact(session, items):
    """Do what the SDK does when it has made a compaction: it reads the items again to restore them."""
    await session.get_items()
    await session.clear_session()
    await session.add_items(items)


SECRETS = [user("marigold"), user("two")]


def redact(session):
    history_of(session).redact(0, reason="asked to")


def assert_redacted(session, *others):
    assert holding(history_of(session), "marigold") == []
    shown = [event.content for event in history_of(session).view()]
    assert shown == [*others, "[redacted]", "two"]


@pytest.mark.parametrize("name", ["get_items", "clear_session", "add_items", "staying"])
async def test_a_compaction_omits_items_redacted_meanwhile(session, monkeypatch, name):
    await session.add_items(SECRETS)
    items = [*await session.get_items(), COMPACTION]
    owner = openai_agents if name == "staying" else session
    before_next_call(monkeypatch, owner, name, partial(redact, session))
    await compact(session, items)
    assert_redacted(session)


async def test_a_compaction_omits_redacted_items_never_reread(session):
    """The SDK adds new items to the items that it has read, and does not read them again."""
    assert await session.get_items() == []
    await session.add_items(SECRETS)
    redact(session)
    await compact(session, [*SECRETS, COMPACTION])
    assert_redacted(session)


async def test_a_compaction_omits_redacted_items_after_erasing(histories):
    session = FoldlogSession("s", histories, clear="erase")
    await session.add_items(SECRETS)
    items = [*await session.get_items(), COMPACTION]
    redact(session)
    for _ in range(2):  # the SDK compacts the items again that it has in memory
        await compact(session, items)
        assert_redacted(session)
    await session.add_items([user("three")])
    assert await texts_of(session) == ["[redacted]", "two", "three"]


async def test_a_compaction_omits_redacted_items_after_an_append(session):
    await session.add_items(SECRETS)
    items = await session.get_items()
    redact(session)
    await session.clear_session()
    append_other(session)
    await session.add_items([*items, COMPACTION])
    assert_redacted(session, "other")


async def test_a_compaction_of_redacted_items_hides_no_append(session, monkeypatch):
    await session.add_items(SECRETS)
    items = await session.get_items()
    redact(session)
    await session.clear_session()
    before_next_call(monkeypatch, foldlog.History, "append", partial(append_other, session))
    await session.add_items([*items, COMPACTION])
    assert_redacted(session, "other")


@pytest.fixture
def parent(histories):
    """The session is a fork of this conversation. If the conversation redacts an event, the version
    of the fork stays the same.
    """
    parent = histories["parent"]
    parent.append_records(SECRETS, format="openai-responses")
    parent.fork(2, "openai-agents/s")
    return parent


def redact_before(monkeypatch, name, parent, event=0):
    owner = foldlog.History if name == "_recorder" else openai_agents
    before_next_call(monkeypatch, owner, name, lambda: parent.redact(event, reason="asked to"))


async def test_a_compaction_omits_shared_items_redacted_meanwhile(session, parent, monkeypatch):
    items = await session.get_items()
    redact_before(monkeypatch, "shown_records", parent)
    await compact(session, [*items, COMPACTION])
    assert_redacted(session)


async def test_restored_items_omit_shared_items_redacted_meanwhile(session, parent, monkeypatch):
    items = await session.get_items()
    parent.redact(1, reason="asked to")
    await session.clear_session()
    append_other(session)
    redact_before(monkeypatch, "_recorder", parent)
    await session.add_items([*items, COMPACTION])
    assert await texts_of(session) == ["other", "[redacted]", "[redacted]"]


async def test_a_popped_shared_item_redacted_meanwhile_is_redacted(session, parent, monkeypatch):
    redact_before(monkeypatch, "change_of_prompt", parent, 1)
    assert await session.pop_item() == user("[redacted]")


async def test_run_options_contain_the_whole_session(session):
    options = session.run_options(RunConfig(workflow_name="w"))
    await Runner.run(measuring(ScriptedModel(steps(1))), "how far?", **options)
    assert history_of(session).stats().models
    assert options["run_config"].workflow_name == "w"
    with pytest.raises(ValueError, match="already has a call_model_input_filter"):
        session.run_options(options["run_config"])


@pytest.mark.parametrize("model, named", [("m", "m"), (None, "ScriptedModel")])
async def test_each_calls_usage_is_recorded_with_its_day(session, model, named):
    scripted = ScriptedModel(steps(2))
    if model:
        scripted.model = model
    began_on = datetime.now(UTC).date()
    await Runner.run(measuring(scripted), "how far?", session=session, hooks=session.hooks)
    days = history_of(session).stats().models.values()
    # a day may end between two calls
    assert {figures.model for figures in days} == {named}
    assert sum(figures.calls for figures in days) == 3
    assert {figures.day for figures in days} <= {
        day.isoformat() for day in (began_on, datetime.now(UTC).date())
    }


def asking(name, *agents, turns=1):
    """Return an agent that asks each of the agents, so many times, and then answers."""

    def reply(items, number):
        if number % (turns + 1) < turns:
            return [
                call(
                    f"ask_{agent.name}",
                    json.dumps({"input": "go on"}),
                    f"{name}{number}{agent.name}",
                )
                for agent in agents
            ]
        return [said(f"answer of {name}", number)]

    model = ScriptedModel(reply if agents else lambda items, number: [said("leaf", number)])
    model.model = "gpt-5"
    tools = [agent.as_tool(f"ask_{agent.name}", "asks") for agent in agents]
    return Agent(name=name, model=model, tools=tools)


async def test_calls_of_agents_that_are_tools_are_counted(session):
    leaves = asking("left"), asking("right")
    middle = asking("middle", *leaves, turns=2)
    top = asking("top", middle, asking("other"))
    options = session.run_options()
    for _ in range(2):
        result = await Runner.run(top, "go", **options)
    (figures,) = history_of(session).stats().models.values()
    usage = result.context_wrapper.usage
    assert usage.requests > 5
    assert figures.model == "gpt-5"
    assert figures.calls == 2 * usage.requests
    assert figures.prompt_tokens == 2 * usage.input_tokens
    assert figures.completion_tokens == 2 * usage.output_tokens
    assert figures.cached_tokens == 2 * usage.input_tokens_details.cached_tokens


async def test_agents_of_several_models_have_no_price(session):
    cheap = asking("cheap")
    dear = asking("dear")
    dear.model.model = "gpt-5-pro"
    await Runner.run(asking("top", cheap, dear), "go", **session.run_options())
    calls = {model.model: model.calls for model in history_of(session).stats().models.values()}
    assert calls == {"gpt-5": 2, "(not named)": 2}


async def test_the_filter_leaves_unstored_items(session):
    async def filtered(data):
        return await session.input_filter(CallModelData(model_data=data, agent=None, context=None))

    await session.add_items(numbered(4))
    data = ModelInputData(input=numbered(6), instructions="i")
    assert await filtered(data) is data, "nothing was condensed"
    history_of(session).append(
        foldlog.CondensationAction(forgotten_event_ids=[0, 1], summary="before", summary_offset=0)
    )
    expected = ModelInputData(input=[user("before"), *numbered(2, 6)], instructions="i")
    assert await filtered(data) == expected
    foreign = ModelInputData(input=[user("other")], instructions=None)
    assert await filtered(foreign) is foreign


async def test_calls_without_reasoning_have_no_ids():
    with foldlog.open("memory:", condenser={"type": "clear_thinking"}) as histories:
        turns = steps(99)
        model = ScriptedModel(
            lambda items, number: turns(items, number) if number % 4 < 3 else [said("fine", number)]
        )
        session = FoldlogSession("s", histories, condense=True)
        run = RunConfig(call_model_input_filter=session.input_filter)
        for prompt in ("how far?", "and back?"):
            await Runner.run(measuring(model), prompt, session=session, run_config=run)
        kinds = [(item.get("type"), "id" in item) for item in model.prompts[-1]]
        assert kinds.count(("function_call", False)) == 4
        assert kinds.count(("reasoning", True)) == 3


@pytest.mark.parametrize("approved", [True, False])
async def test_approvals_are_events_of_their_call(session, approved):
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
    for _ in range(2):
        await session.ask_approvals(stopped, to="ann")
    state = stopped.to_state()
    await session.decide(state, stopped.interruptions[0], approved, by="ann", reason="a reason")
    await Runner.run(agent, state, session=session)
    assert paid == [5] * approved
    assert approvals_of(history_of(session)) == {
        "c1": [
            {"asked": "ann", "shown": {"tool": "pay", "arguments": '{"euros": 5}'}},
            decided(approved, by="ann", reason="a reason"),
        ]
    }
