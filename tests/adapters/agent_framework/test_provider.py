"""``FoldlogHistoryProvider``: equal to the SDK's own provider, and what runs do with it."""

import json
import random

import pytest
from agent_framework import (
    EXCLUDED_KEY,
    Agent,
    AgentSession,
    CompactionProvider,
    Content,
    FileHistoryProvider,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    SelectiveToolCallCompactionStrategy,
    SlidingWindowStrategy,
    SummarizationStrategy,
    ToolResultCompactionStrategy,
    tool,
)

import foldlog
from foldlog.adapters import agent_framework
from foldlog.adapters.agent_framework import FoldlogHistoryProvider
from foldlog.eventstore import Observation
from tests.adapters.agent_framework.scripted import ScriptedClient, call, parts, replies, said
from tests.adapters.contract import (
    FILE,
    IMAGE,
    STRATEGIES,
    VALUES,
    Answers,
    Condenses,
    approvals_of,
    check_import,
    check_requests,
    condensations,
    decided,
    holding,
    steps,
)
from tests.sound import assert_sound

pytestmark = pytest.mark.anyio


@pytest.fixture
def provider(histories):
    return FoldlogHistoryProvider(histories)


@pytest.fixture
def history(provider):
    return provider.histories.sync[provider.conversation("s")]


def plain(messages):
    return [json.dumps(message.to_dict(), sort_keys=True) for message in messages]


def any_content(choice, role):
    about = (
        {choice.choice(["x", "\x00", "$bytes"]): choice.choice(VALUES)}
        if choice.random() < 0.3
        else None
    )
    if role == "tool":
        result = choice.choice(["done", {"a": [1]}, "", None])
        failed = choice.choice([None, "ValueError: no"])
        return Content.from_function_result(
            call_id="c", result=result, exception=failed, additional_properties=about
        )
    makers = [
        lambda: Content.from_text(
            choice.choice(["hi", "a\x00b", "é", ""]), additional_properties=about
        )
    ]
    if role == "user":
        makers += [
            lambda: Content.from_data(b"\x00\xff", "image/png"),
            lambda: Content.from_uri("https://x/y.pdf", media_type="application/pdf"),
        ]
    if role == "assistant":
        makers += [
            lambda: Content.from_function_call(
                call_id="c", name="f", arguments=choice.choice(['{"a":', {"a": 1}, "{}"])
            ),
            lambda: Content.from_text_reasoning(text="hm", protected_data="x"),
            lambda: Content.from_usage({"input_token_count": 3}),
        ]
    return choice.choice(makers)()


def any_message(choice, number):
    role = choice.choice(["user", "assistant", "tool", "system"])
    return Message(
        role,
        [any_content(choice, role) for _ in range(choice.choice([0, 1, 1, 1, 2, 4]))],
        message_id=choice.choice([None, f"m{number}"]),
        author_name=choice.choice([None, "a"]),
        additional_properties={"k": choice.choice(VALUES)} if choice.random() < 0.3 else None,
    )


async def test_random_messages_equal_the_sdks_provider(file_url):
    choice = random.Random(3)
    theirs = InMemoryHistoryProvider()
    states = {"a": {}, "b/c": {}, None: {}}
    for opened in range(4):
        async with FoldlogHistoryProvider(file_url) as provider:
            for number in range(40 * opened, 40 * opened + 40):
                session, state = choice.choice(list(states.items()))
                before = await theirs.get_messages(session, state=state)
                new = [any_message(choice, f"{number}-{n}") for n in range(choice.randrange(4))]
                if choice.random() < 0.3:  # the SDK gives messages again
                    again = before[choice.choice([0, -1, -2, len(before)]) :]
                    new = [*again, any_message(choice, number)]
                await provider.save_messages(session, new)
                await theirs.save_messages(session, new, state=state)
                expected = plain(await theirs.get_messages(session, state=state))
                assert plain(await provider.get_messages(session)) == expected


async def test_equal_messages_of_a_user_are_both_stored(provider):
    for _ in range(2):
        await provider.save_messages("s", [Message("user", ["again"])])
    assert [message.text for message in await provider.get_messages("s")] == ["again", "again"]


@pytest.mark.filterwarnings("ignore:.FILE_HISTORY")
async def test_a_session_is_copied_and_copied_on(provider, tmp_path):
    theirs = FileHistoryProvider(tmp_path / "theirs")
    first = [Message("user", [str(number)], message_id=f"m{number}") for number in range(9)]
    await theirs.save_messages("s", first)
    assert await provider.copy_from(theirs, "s") == 9
    assert plain(await provider.get_messages("s")) == plain(await theirs.get_messages("s"))
    await theirs.save_messages("s", [Message("user", ["more"])])
    assert await provider.copy_from(theirs, "s") == 1
    await provider.save_messages("s", [Message("user", ["here"])])
    with pytest.raises(ValueError, match=r"has 11 messages, and the 10 .* to copy do not begin"):
        await provider.copy_from(theirs, "s")


@pytest.mark.filterwarnings("ignore:.FILE_HISTORY")
async def test_a_second_copy_of_a_session_with_one_message(provider, tmp_path):
    theirs = FileHistoryProvider(tmp_path / "theirs")
    await theirs.save_messages("s", [Message("user", ["hi"])])
    assert await provider.copy_from(theirs, "s") == 1
    await theirs.save_messages("s", [Message("assistant", ["hello"])])
    assert await provider.copy_from(theirs, "s") == 1
    assert plain(await provider.get_messages("s")) == plain(await theirs.get_messages("s"))


@pytest.mark.filterwarnings("ignore:.FILE_HISTORY")
@pytest.mark.parametrize("there, added", [(2, 1), (3, 0)])
async def test_two_copies_at_once_add_each_message_once(
    provider, histories, tmp_path, monkeypatch, there, added
):
    messages = [Message("user", [str(number)]) for number in range(3)]
    theirs = FileHistoryProvider(tmp_path / "theirs")
    await theirs.save_messages("s", messages)
    earlier = FileHistoryProvider(tmp_path / "earlier")
    await earlier.save_messages("s", messages[:there])
    read = provider.get_messages

    async def read_before_another_copy(session_id):
        stored = await read(session_id)
        await FoldlogHistoryProvider(histories).copy_from(earlier, session_id)
        return stored

    monkeypatch.setattr(provider, "get_messages", read_before_another_copy)
    assert await provider.copy_from(theirs, "s") == added
    assert plain(await read("s")) == plain(messages)


class TestKeeps(Answers, Condenses):
    runtime = "agent-framework"
    keeps_late = True

    def opened(self, url, **options):
        return FoldlogHistoryProvider(url, condense=self.condense, **options)

    async def add(self, store, *names):
        await store.save_messages("s", [Message("user", [name]) for name in names])

    async def names(self, store):
        return [message.text for message in await store.get_messages("s")]

    def model(self, script):
        return client_of(script)

    async def run(self, store, model, prompt, *tools):
        await run_agent(agent_of(model, store, tools=tools, middleware=[store.effects]), prompt)

    def texts(self, prompt):
        contents = [content for message in prompt for content in message.contents]
        return [content.text or content.result or content.parse_arguments() for content in contents]

    def parts(self, prompt):
        return parts(prompt)

    async def stored_parts(self, store):
        return parts(await store.get_messages("s"))


# -- runs


def measure(unit: str) -> str:
    """Measure."""
    return f"9 {unit}"


def client_of(script, **settings):
    return ScriptedClient(lambda messages, number: replies(script(number)), **settings)


def agent_of(client, *providers, each_call=True, tools=(measure,), **settings):
    return Agent(
        client,
        tools=[each if isinstance(each, FunctionTool) else tool(each) for each in tools],
        context_providers=list(providers),
        require_per_service_call_history_persistence=each_call,
        **settings,
    )


async def run_agent(agent, prompt):
    return await agent.run(prompt, session=AgentSession(session_id="s"))


async def shown_before_the_reply(provider):
    """Return what the View has before the last reply of the model."""
    messages = await FoldlogHistoryProvider(provider.histories.sync).get_messages("s")
    assert messages[-1].role == "assistant"
    return parts(messages[:-1])


@pytest.mark.parametrize(
    "url, strategy",
    [
        ("memory", SlidingWindowStrategy(keep_last_groups=5)),
        ("sqlite", SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=2)),
        ("postgres", None),
    ],
    indirect=["url"],
    ids=["window", "calls", "condense"],
)
async def test_the_view_equals_the_prompt_of_each_call(url, strategy):
    choice = random.Random(3)
    with foldlog.open(url, condenser=STRATEGIES["digest"]) as histories:
        provider = FoldlogHistoryProvider(histories, condense=strategy is None)
        client = client_of(steps(choice), messages_max=None if strategy else 40)
        agent = agent_of(client, provider, compaction_strategy=strategy)
        history = histories[provider.conversation("s")]
        await talk_and_branch(agent, client, provider, choice)
        assert len(condensations(history)) >= 5
        assert_sound(histories.store)


async def talk_and_branch(agent, client, provider, choice):
    """Run an agent until it has 200 prompts, from another version now and then. Each prompt is what
    the View shows.
    """
    history = provider.histories.sync[provider.conversation("s")]
    while len(client.prompts) < 200:
        await run_agent(agent, f"step {len(client.prompts)}")
        assert await shown_before_the_reply(provider) == parts(client.prompts[-1])
        if choice.random() < 0.1 and len(client.prompts) > 20:
            # versions at which a reply without calls was the end
            ends = [event.id + 1 for event in history.events() if is_end(event)]
            history.retract(choice.choice(ends[-5:-1]), "another branch")


def is_end(event):
    return "finished" in str(getattr(event, "content", ""))


def numbered(text):
    """Return a client that says a text with the number of its reply."""
    return ScriptedClient(lambda messages, number: [said(f"{text} {number}")])


SUMMARIES = SummarizationStrategy(client=numbered("summary"))


@pytest.mark.parametrize(
    "strategy, has_summaries",
    [
        (SlidingWindowStrategy(keep_last_groups=4), False),
        (SUMMARIES, True),
        (ToolResultCompactionStrategy(keep_last_tool_call_groups=1), True),
    ],
    ids=["window", "summaries", "results"],
)
async def test_the_sdks_own_compaction_is_stored(provider, history, strategy, has_summaries):
    choice = random.Random(3)
    client = client_of(steps(choice))
    agent = agent_of(client, provider, compacting(provider, strategy), each_call=False)
    await talk_and_branch(agent, client, provider, choice)
    appended = condensations(history)
    assert len(appended) >= 5
    assert any(event.summary for event in appended) == has_summaries
    everything = [event for event in history.events() if event.origin is not None]
    assert len(everything) > len(history.view()), "the log keeps what was left out"


def compacting(provider, strategy):
    """Return what compacts the messages of a session before a run."""
    return CompactionProvider(before_strategy=strategy, history_source_id=provider.source_id)


async def summarized_once(provider, act):
    """Return an agent whose last run stored a summary that quotes a flower. Before the summary was
    made, ``act`` was called.
    """
    quoting = []

    def summarize(messages, number):
        if "marigold" not in repr([message.to_dict() for message in messages]):
            return [said("no flower")]
        quoting.append(number)
        act()
        return [said("a marigold")]

    compaction = compacting(provider, SummarizationStrategy(client=ScriptedClient(summarize)))
    agent = agent_of(numbered("reply"), provider, compaction, each_call=False)
    for number in range(8):
        if not quoting:
            await run_agent(agent, "marigold" if number == 0 else f"{number}")
    assert len(quoting) == 1
    return agent


async def test_a_summary_with_redacted_text_is_not_stored(provider, history):
    def redact():
        history.redact(holding(history, "marigold"), reason="asked to")

    agent = await summarized_once(provider, redact)
    assert condensations(history) == []
    await run_agent(agent, "go on")
    assert "no flower" in [event.summary for event in condensations(history)]
    assert holding(history, "marigold") == []


async def test_a_message_without_a_stored_summary_is_shown(provider, history):
    await provider.save_messages("s", [Message("user", ["marigold"])])
    seen = history._seen()
    history.redact(0, reason="asked to")
    run = agent_framework._Run([], [], seen, None)
    message = Message("user", ["two"], additional_properties={EXCLUDED_KEY: True})
    await provider.save_messages("s", [message], state={agent_framework._RUN: run})
    messages = await provider.get_messages("s")
    assert [message.text for message in messages] == ["[redacted]", "two"]
    assert not messages[1].additional_properties.get(EXCLUDED_KEY)


async def test_a_summary_spares_a_session_begun_again(provider, histories):
    name = provider.conversation("s")

    def begin_again():
        histories.erase(name, reason="asked to")
        new = histories.create(name, replace_erased=True)
        new.append([foldlog.Message(source="user", content=text) for text in ("one", "two")])

    await summarized_once(provider, begin_again)
    assert [event.content for event in histories[name].view()][:2] == ["one", "two"]
    assert condensations(histories[name]) == []


async def test_a_summary_within_a_run_hides_nothing(provider):
    client = client_of(steps(random.Random(5)))
    agent = agent_of(client, provider, compaction_strategy=SUMMARIES)
    prompts = [f"step {number}" for number in range(20)]
    for prompt in prompts:
        await run_agent(agent, prompt)
    users = [message.text for message in await provider.get_messages("s") if message.role == "user"]
    assert users == prompts


async def test_results_left_out_within_a_run_are_forgotten(provider):
    client = client_of(lambda number: measures(number) if number < 6 else "finished")
    strategy = SelectiveToolCallCompactionStrategy(keep_last_tool_call_groups=2)
    await run_agent(agent_of(client, provider, each_call=False, compaction_strategy=strategy), "go")
    assert await shown_before_the_reply(provider) == parts(client.prompts[-1])
    assert len(client.prompts[-1]) == 5


def measures(number):
    return [("measure", f"c{number}", {"unit": "km"})]


def three_steps(number):
    return measures(number) if number % 3 < 2 else "finished"


@pytest.mark.parametrize("strategy", [None, *STRATEGIES])
async def test_simultaneous_runs_send_calls_before_their_results(strategy):
    async def ask_another() -> str:
        """Ask."""
        for number in range(4):
            await run_agent(agent_of(other, provider), f"other {number}")
        return "asked"

    def script(number):
        calls = ["let me see", *measures(0), ("ask_another", "b", {})]
        return "finished" if number else calls

    with foldlog.open("memory:", condenser=STRATEGIES.get(strategy)) as histories:
        provider = FoldlogHistoryProvider(histories, condense=strategy is not None)
        # they refuse a prompt as a server does
        client = client_of(script)
        other = client_of(three_steps)
        await run_agent(agent_of(client, provider, tools=(measure, ask_another)), "go")
        contents = [content for _, (content,) in parts(client.prompts[-1])[-5:]]
        sent = [content.get("text") or content["call_id"] for content in contents]
        assert sent == ["let me see", "c0", "b", "c0", "b"]
        await run_agent(agent_of(other, provider), "and now")
        events = histories[provider.conversation("s")].events()
        assert sum(isinstance(event, Observation) for event in events) == 12


class Nameless(ScriptedClient):
    """A client whose messages have no ids, as from many servers."""

    async def _answered(self, messages):
        response = await super()._answered(messages)
        response.messages[0].message_id = None
        return response


def dead(number):
    """Return what a run leaves that was killed in a tool."""
    return [Message("user", ["go"]), Message("assistant", [call("measure", "{}", f"dead{number}")])]


def calls_in(messages):
    contents = [content for message in messages for content in message.contents]
    return [content.call_id for content in contents if content.call_id]


@pytest.mark.parametrize("kind", [ScriptedClient, Nameless])
async def test_a_killed_runs_call_is_not_sent(provider, kind):
    client = kind(lambda _, number: replies("finished" if number % 2 else measures(number)))
    for number in range(3):
        await provider.save_messages("s", dead(number))
        await run_agent(agent_of(client, provider), "step")
    assert calls_in(client.prompts[-1]) == ["c0", "c0", "c2", "c2", "c4", "c4"], (
        "each call with its result"
    )


@tool(approval_mode="always_require")
def risky() -> str:
    """Risky."""
    return "done"


async def approved(agent, session):
    """Run an agent until a call waits for approval, and approve it. Return what is said then."""
    (request,) = (await agent.run("go", session=session)).user_input_requests
    answer = Message("user", [request.to_function_approval_response(True)])
    return (await agent.run(answer, session=session)).text


@pytest.mark.parametrize("each_call", [True, False])
async def test_an_unapproved_call_is_not_sent(provider, each_call):
    client = client_of(lambda number: "finished" if number == 2 else [("risky", f"c{number}", {})])
    agent = agent_of(client, provider, each_call=each_call, tools=(risky,))
    session = AgentSession(session_id="s")
    await agent.run("go", session=session)
    assert await approved(agent, session) == "finished"
    assert calls_in(client.prompts[-1]) == ["c1", "c1"], "a server refuses a call without a result"


async def test_a_call_goes_on_after_its_approval(provider):
    calls = [("risky", "c", {}), ("measure", "beside", {"unit": "km"})]
    client = client_of(lambda number: "finished" if number % 2 else calls)
    for each_call in (True, False):
        client.prompts.clear()
        session = AgentSession(session_id=f"s{each_call}")
        await provider.save_messages(session.session_id, dead(0))
        agent = agent_of(client, provider, each_call=each_call, tools=(risky, measure))
        assert await approved(agent, session) == "finished"
        assert "done" in str(parts(client.prompts[-1]))
        await provider.save_messages(session.session_id, dead(1))
        assert (await agent.run("go on", session=session)).user_input_requests
        assert "dead" not in str(client.prompts)


@pytest.mark.parametrize(
    "allowed, each_call, streamed", [(True, True, False), (False, False, False), (True, True, True)]
)
async def test_approvals_are_events_of_their_call(provider, history, allowed, each_call, streamed):
    async def run(message):
        if not streamed:
            return await agent.run(message, session=session)
        return await agent.run(message, session=session, stream=True).get_final_response()

    client = client_of(lambda number: "finished" if number else [("risky", "c", {})])
    middleware = [provider.approvals]
    agent = agent_of(client, provider, each_call=each_call, tools=(risky,), middleware=middleware)
    session = AgentSession(session_id="s")
    (request,) = (await run("go")).user_input_requests
    await run(Message("user", [request.to_function_approval_response(allowed)], author_name="ann"))
    question = {"asked": None, "shown": {"tool": "risky", "arguments": "{}"}}
    assert approvals_of(history) == {"c": [question, decided(allowed, by="ann")]}


FILES = [
    Content.from_data(IMAGE, media_type="image/png"),
    Content.from_data(FILE, media_type="application/pdf"),
]


def test_a_view_shows_the_sdks_images(histories):
    result = Content.from_function_result(call_id="c1", result=[said("see"), *FILES])
    messages = [
        Message("user", FILES),
        Message("assistant", [call("look", "{}", "c1")]),
        Message("tool", [result]),
    ]
    written = json.dumps([message.to_dict() for message in messages])
    check_import(histories, "agent-framework", written, 2)


async def test_a_reply_names_its_request(provider, history):
    client = client_of(lambda number: "9 m" if number else [("measure", "c", {"unit": "m"})])
    settings = {"instructions": "You measure.", "middleware": [provider.requests]}
    await run_agent(agent_of(client, provider, **settings), "measure")
    check_requests(history)
