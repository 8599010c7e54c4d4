"""``FoldlogSteps``: every message of a run is saved when it exists, and a killed run goes on at its
pending call.
"""

import asyncio
import random
from dataclasses import replace

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ToolReturn, capture_run_messages
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    CompactionPart,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.usage import UsageLimits

import foldlog
from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps
from foldlog.projections import well_formed
from tests.adapters.contract import approvals_of, asked, condensations, decided
from tests.adapters.pydantic_ai.scripted import (
    check,
    loaded,
    messages_of,
    parts_of,
    reply,
    said,
    scripted,
)

pytestmark = pytest.mark.anyio


class Unit(BaseModel):
    unit: str


def measure(unit: str) -> str:
    """Measure."""
    return f"9 {unit}"


def steps(count):
    """Return a script of so many turns with tools, the second one with two calls, before the last
    message.
    """

    def script(messages, number):
        if number >= count:
            return said("finished")
        calls = [
            ToolCallPart("measure", {"unit": "km"}, f"c{number}-{n}") for n in range(1 + number % 2)
        ]
        return ModelResponse(parts=calls)

    return script


def agent_of(store, script, prompts=None, **options):
    return Agent(
        scripted(script, prompts), tools=[measure], capabilities=[FoldlogSteps(store)], **options
    )


@pytest.fixture
def store(histories):
    return FoldlogConversationStore(histories)


async def test_a_run_saves_itself_and_goes_on(store):
    result = await agent_of(store, steps(3)).run("how far?", conversation_id="c")
    assert result.output == "finished"
    loaded = await store.load("c")
    assert loaded.messages == result.all_messages()
    assert (loaded.usage, loaded.usage.requests) == (result.usage, 4)
    prompts = []
    again = await agent_of(store, steps(0), prompts).run("and back?", conversation=loaded)
    assert prompts[0][:-1] == loaded.messages
    now = await store.load("c")
    assert (now.messages, now.usage.requests) == (again.all_messages(), 5)
    record = await store.read_record("c")
    assert record.branches == [], "each message was saved once, in its final form"
    view = store.histories.sync[store.conversation("c")].view()
    assert view.to_messages()[-1] == {"role": "assistant", "content": "finished"}
    assert [message["role"] for message in view.to_messages()][:3] == ["user", "assistant", "tool"]


@pytest.mark.parametrize("condense", [True, False])
async def test_the_view_equals_the_prompt_of_random_steps(file_url, condense):
    choice = random.Random(4)
    compared = []
    with foldlog.open(
        file_url, condenser={"type": "digest", "max_size": 24, "keep_first": 1}
    ) as histories:
        store = FoldlogConversationStore(histories)
        history = histories[store.conversation("c")]

        def script(messages, number):
            kinds = {"Action": "tool-call", "Observation": "tool-return"}
            view = [
                (kinds[type(event).__name__], event.call_id)
                if type(event).__name__ in kinds
                else ("text" if event.source == "agent" else "user-prompt", event.content)
                for event in well_formed(history.view())
            ]
            compared.append((view, parts_of(messages)))
            if choice.random() < 0.4:
                return said(f"answer {number}")
            calls = [
                ToolCallPart("measure", {"unit": "km"}, f"c{number}-{n}")
                for n in range(choice.choice([1, 2]))
            ]
            return ModelResponse(parts=[TextPart("let me see"), *calls])

        prompts = []
        steps = FoldlogSteps(store, condense=condense)
        agent = Agent(scripted(script, prompts), tools=[measure], capabilities=[steps])
        branches = summaries = 0
        while len(compared) < 200:
            conversation = await loaded(store)
            how = choice.random()
            # as an application compacts, or Pydantic AI Harness
            if len(conversation.messages) > 4 and how < 0.1:
                users = [
                    n
                    for n, message in enumerate(conversation.messages)
                    if isinstance(message.parts[0], UserPromptPart)
                ]
                summary = ModelRequest(parts=[CompactionPart(f"summary {len(compared)}")])
                conversation.messages = [
                    summary,
                    *conversation.messages[choice.choice(users[-3:]) :],
                ]
                summaries += 1
            elif conversation.messages and how < 0.35:
                ends = [
                    place
                    for place, message in enumerate(conversation.messages)
                    if message.kind == "response"
                ]
                ends = [place for place in ends if not conversation.messages[place].tool_calls]
                conversation = await store.branch(
                    "c", at=choice.choice(ends[-4:]) + 1, expected_revision=conversation.revision
                )
                branches += 1
            await agent.run(
                f"turn {len(compared)}",
                conversation=conversation,
                usage_limits=UsageLimits(request_limit=None),
            )
        for view, messages in compared:
            assert view == messages
        assert min(branches, summaries) > 3
        assert max(len(messages) for _, messages in compared) < 30 or not condense
        assert len(condensations(history)) >= summaries, (
            "a history that begins with a summary is a condensation"
        )
        stored = await messages_of(store)
        assert len(stored) > 40 if condense else parts_of(stored[:-1]) == messages, (
            "the conversation stays whole"
        )


async def test_messages_are_saved_before_models_and_tools(store):
    calls = []

    async def look(kind):
        calls.append((kind, len(await messages_of(store))))

    async def tool() -> str:
        """Look."""
        await look("tool")
        return "done"

    async def script(messages, info):
        await look("model")
        return (
            ModelResponse(parts=[ToolCallPart("tool", {}, "c0")])
            if len(messages) == 1
            else said("finished")
        )

    agent = Agent(FunctionModel(script), tools=[tool], capabilities=[FoldlogSteps(store)])
    await agent.run("go", conversation_id="c")
    assert calls == [("model", 1), ("tool", 2), ("model", 3)]
    assert len(await messages_of(store)) == 4


@pytest.mark.parametrize("ends", ["early", "exhaustive"])
async def test_a_streamed_runs_last_results_are_saved(store, ends):
    """The SDK shows no capability the request with them."""

    async def stream(messages, info):
        yield {0: DeltaToolCall("measure", '{"unit": "km"}', tool_call_id="c0")}
        yield {1: DeltaToolCall("look", "{}", tool_call_id="c1")}
        yield {2: DeltaToolCall("final_result", '{"unit": "km"}', tool_call_id="c2")}

    def look() -> ToolReturn:
        return ToolReturn("a map", content="This is the map.", metadata={"sheet": 4})

    agent = agent_of(store, steps(0), output_type=Unit, end_strategy=ends)
    agent.tool_plain(look)
    for prompt in ("go", "go on"):
        conversation = await loaded(store)
        with agent.override(model=FunctionModel(stream_function=stream)):
            async with agent.run_stream(prompt, conversation=conversation) as streamed:
                assert await streamed.get_output() == Unit(unit="km")
        ours = await messages_of(store)
        theirs = streamed.all_messages()
        assert ours[:-1] == theirs[:-1]
        assert (ours[-1].run_id, ours[-1].conversation_id) == (theirs[-1].run_id, "c")
        was_called = {
            part.tool_call_id: part for part in theirs[-1].parts[:2] if ends == "exhaustive"
        }
        *results, look_at = ours[-1].parts if was_called else [*ours[-1].parts, None]
        assert [part.tool_call_id for part in results] == ["c0", "c1", "c2"]
        for part in results:
            same = was_called.get(part.tool_call_id)
            none = "There is no result: the run ended with its final result."
            assert (part.content, part.metadata) == (
                (same.content, same.metadata) if same else (none, None)
            )
        assert (look_at and look_at.content) == ("This is the map." if was_called else None)
    result = await agent.run("more", message_history=theirs, conversation_id="c", output_type=str)
    assert await messages_of(store) == result.all_messages()


@pytest.mark.parametrize("output", [str, Unit])
@pytest.mark.parametrize(
    "ends", ["raises at once", "raises", "raises after all", "leaves", "cancels", "is cancelled"]
)
async def test_interrupted_streams_save_what_was_received(store, ends, output):
    async def stream(messages, info):
        check(messages)
        for place, tool in enumerate(("measure", "final_result") if output is Unit else ()):
            yield {place: DeltaToolCall(tool, '{"unit": "km"}', tool_call_id=f"c{place}")}
        if output is str:
            for word in ("nine ", "km"):
                yield word

    async def run(prompt, ends):
        """Run the agent until the stream ends in this way, or regularly."""
        conversation = await loaded(store)
        async with agent.run_stream(prompt, conversation=conversation) as streamed:
            if ends in ("raises after all", "regularly"):
                await streamed.get_output()
            if ends in ("raises", "leaves"):
                await anext(streamed.stream_response(debounce_by=None))
            if ends == "is cancelled":
                asyncio.current_task().cancel()
                await asyncio.sleep(0)
            elif ends == "cancels":
                await streamed.cancel()
            elif ends.startswith("raises"):
                raise KeyError("the block")

    model = FunctionModel(stream_function=stream)
    agent = Agent(model, tools=[measure], capabilities=[FoldlogSteps(store)], output_type=output)
    with capture_run_messages() as theirs:
        await asyncio.gather(run("go", ends), return_exceptions=True)
    ours = await messages_of(store)
    assert len(ours) == 2
    # its calls are over
    is_unfinished = (
        ours[1].state == "interrupted" and theirs[1].state == "incomplete" and output is Unit
    )
    assert ours == [
        theirs[0],
        replace(theirs[1], state="interrupted") if is_unfinished else theirs[1],
    ]
    await run("go on", "regularly")
    assert (await messages_of(store))[:2] == ours


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_paused_run_goes_on_with_its_results(store, streamed):
    ran = []

    async def stream(messages, info):
        for place, (name, call_id) in enumerate((("other", "c0"), ("pay", "c1"))):
            yield {place: DeltaToolCall(name, "{}", tool_call_id=call_id)}

    def script(messages, info):
        calls = [ToolCallPart("other", {}, "c0"), ToolCallPart("pay", {}, "c1")]
        return ModelResponse(parts=calls) if len(messages) == 1 else said("finished")

    model = FunctionModel(script, stream_function=stream)
    agent = Agent(
        model, capabilities=[FoldlogSteps(store)], output_type=[str, DeferredToolRequests]
    )
    agent.tool_plain(lambda: "approved", name="other", requires_approval=True)
    agent.tool_plain(lambda: ran.append("paid") or "paid", name="pay")
    if streamed:
        async with agent.run_stream("go", conversation_id="c") as result:
            waits = await result.get_output()
    else:
        result = await agent.run("go", conversation_id="c")
        waits = result.output
    paused = await store.load("c")
    assert paused.deferred_tool_requests == waits
    approved = DeferredToolResults(approvals={"c0": True})
    result = await agent.run(deferred_tool_results=approved, conversation=paused)
    assert (result.output, ran) == ("finished", ["paid"])
    assert {("tool-return", "c0"), ("tool-return", "c1")} <= set(parts_of(result.all_messages()))


async def test_approvals_are_events_of_their_call(store):
    def script(messages, number):
        calls = [ToolCallPart("pay", {"euros": n}, f"c{n}") for n in (1, 2)]
        return said("finished") if number else ModelResponse(parts=calls)

    agent = agent_of(store, script, output_type=[str, DeferredToolRequests])
    agent.tool_plain(lambda euros: "paid", name="pay", requires_approval=True)
    await agent.run("go", conversation_id="c")
    results = DeferredToolResults(
        approvals={"c1": True, "c2": ToolDenied("too much")}, metadata={"c1": {"by": "ann"}}
    )
    await agent.run(deferred_tool_results=results, conversation=await store.load("c"))
    history = store.histories.sync[store.conversation("c")]
    assert approvals_of(history) == {
        "c1": [asked("pay", euros=1), decided(True, by="ann")],
        "c2": [asked("pay", euros=2), decided(False, reason="too much")],
    }


@pytest.mark.parametrize("secret", ["9 km", "approved"])
async def test_a_run_goes_on_after_redacted_results(store, secret):
    """The SDK joins the two requests with the results for the next run."""

    def script(messages, number):
        calls = [ToolCallPart("other", {}, "c0"), ToolCallPart("measure", {"unit": "km"}, "c1")]
        return said(f"answer {number}") if number else ModelResponse(parts=calls)

    agent = agent_of(store, script, output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True, name="other")
    def other() -> str:
        """Wait for approval."""
        return "approved"

    await agent.run("go", conversation_id="c")
    approved = DeferredToolResults(approvals={"c0": True})
    await agent.run(deferred_tool_results=approved, conversation=await store.load("c"))
    old = await store.load("c")
    history = store.histories.sync[store.conversation("c")]
    (result,) = (event for event in history.events() if getattr(event, "content", None) == secret)
    history.redact(result.id, reason="asked to")
    with pytest.raises(ConversationConflict):
        await agent.run("more", message_history=old.messages, conversation_id="c")
    for _ in range(2):
        messages = (await agent.run("more", conversation=await store.load("c"))).all_messages()
        assert await messages_of(store) == messages
        assert {("tool-return", "c0"), ("tool-return", "c1")} <= set(parts_of(messages))
        assert secret not in str(messages)


async def test_one_agent_runs_in_two_conversations_at_once(store):
    agent = agent_of(store, steps(3))
    names = ("c", "d")
    results = await asyncio.gather(
        *(agent.run(f"go to {name}", conversation_id=name) for name in names)
    )
    for name, result in zip(names, results, strict=True):
        assert (await store.load(name)).messages == result.all_messages()


async def test_a_run_with_a_stale_copy_is_refused(store):
    await agent_of(store, steps(1)).run("go", conversation_id="c")
    stale = await store.load("c")
    await agent_of(store, steps(0)).run("b", conversation=await store.load("c"))
    stored = await store.load("c")
    prompts = []
    for options in ({"conversation": stale}, {"conversation_id": "c"}):
        with pytest.raises(ConversationConflict):
            await agent_of(store, steps(0), prompts).run("a", **options)
    assert prompts == [], "no model was called"
    assert await messages_of(store) == stored.messages
    await agent_of(store, steps(0)).run("a", message_history=stored.messages, conversation_id="c")
    assert len(await messages_of(store)) == len(stored.messages) + 2


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_run_repeats_after_a_model_error(store, turns):
    history = []
    for _ in range(turns):
        history = (
            await agent_of(store, steps(1)).run("go", message_history=history, conversation_id="c")
        ).all_messages()

    def fails(messages, number):
        raise ConnectionError("the model is away")

    for _ in range(2):
        with pytest.raises(ConnectionError):
            await agent_of(store, fails).run("more", message_history=history, conversation_id="c")
    result = await agent_of(store, steps(0)).run(
        "more", message_history=history, conversation_id="c"
    )
    assert await messages_of(store) == result.all_messages()
    assert len(result.all_messages()) == len(history) + 2


@pytest.mark.parametrize("as_json", [False, True])
async def test_the_caller_may_answer_the_output_tool(store, as_json):
    """The SDK marks the changed message in no way: all messages before it have to be given."""

    def script(messages, number):
        return ModelResponse(parts=[ToolCallPart("final_result", {"unit": "km"}, f"c{number}")])

    def agent():
        return agent_of(store, script, output_type=Unit)

    result = await agent().run("go", conversation_id="c")
    before = await store.read_record("c")
    history = result.all_messages(output_tool_return_content="well done")
    if as_json:
        history = ModelMessagesTypeAdapter.validate_json(
            result.all_messages_json(output_tool_return_content="well done")
        )
    with pytest.raises(ConversationConflict):
        await agent().run("more", message_history=history[1:], conversation_id="c")
    result = await agent().run("more", message_history=history, conversation_id="c")
    assert await messages_of(store) == result.all_messages()
    assert "well done" in str(result.all_messages()[len(history) - 1])
    assert (await store.read_record("c")).branches == [*before.branches, before.head_id]


async def test_a_run_with_only_recent_messages_appends(store):
    await agent_of(store, steps(1)).run("go", conversation_id="c")
    before = await messages_of(store)
    result = await agent_of(store, steps(0)).run(
        "more", conversation=await store.load("c", limit=1)
    )
    assert await messages_of(store) == [*before, *result.new_messages()]
    assert (await store.read_record("c")).branches == []


async def test_the_second_simultaneous_run_conflicts(store):
    await agent_of(store, steps(0)).run("go", conversation_id="c")

    loaded = [await store.load("c") for _ in range(2)]
    runs = [
        agent_of(store, steps(3)).run(name, conversation=conversation)
        for name, conversation in zip("ab", loaded, strict=True)
    ]
    results = await asyncio.gather(*runs, return_exceptions=True)
    failures = [type(result) for result in results if isinstance(result, Exception)]
    assert failures == [ConversationConflict]
    (ended,) = (result for result in results if not isinstance(result, Exception))
    record = await store.read_record("c")
    lines = [await store.read_history(tip) for tip in [record.head_id, *record.branches]]
    assert ended.all_messages() in [[entry.message for entry in line] for line in lines]


async def test_a_cancelled_run_goes_on(store):
    started = asyncio.Event()

    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.sleep(3600)
        return "never"

    def script(messages, number):
        return ModelResponse(parts=[ToolCallPart("wait", {}, "c0")])

    agent = Agent(scripted(script), tools=[wait], capabilities=[FoldlogSteps(store)])
    task = asyncio.ensure_future(agent.run("go", conversation_id="c"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    loaded = await store.load("c")
    assert loaded.messages[-1].parts[0].tool_call_id == "c0"

    def wait_less() -> str:
        """Wait."""
        return "done"

    prompts = []
    other = Agent(scripted(steps(0), prompts), capabilities=[FoldlogSteps(store)])
    other.tool_plain(wait_less, name="wait")
    result = await other.run(conversation=loaded)
    assert result.output == "finished"
    check(prompts[0])


def delegating(store, helper_store, conversation_ids):
    """Return an agent whose tool asks a second agent, whose tool asks a third one."""

    def ask(conversation, agent):
        async def ask_helper(question: str) -> str:
            result = await agent.run(question, conversation_id=conversation)
            return result.output

        return ask_helper

    def script(messages, number):
        if number:
            return said("the answer")
        return reply([("ask_helper", "call-1", {"question": "how far?"})])

    leaf = Agent(scripted(lambda *_: said("9 km")), capabilities=[FoldlogSteps(helper_store)])
    middle = Agent(
        scripted(script),
        tools=[ask(conversation_ids[1], leaf)],
        capabilities=[FoldlogSteps(helper_store)],
    )
    return Agent(
        scripted(script),
        tools=[ask(conversation_ids[0], middle)],
        capabilities=[FoldlogSteps(store)],
    )


async def test_an_agent_that_a_tool_runs_is_a_sub_agent(store):
    histories = store.histories.sync
    task = histories[store.conversation("task")]
    await delegating(store, store, ["middle", None]).run("how far?", conversation_id="task")
    middle = histories[store.conversation("middle")]
    assert middle.attributes() == {
        "parent": task.id,
        "parent_call": "call-1",
        "runtime": "pydantic-ai",
    }
    (leaf,) = {*histories} - {task.id, middle.id}
    assert histories[leaf].attributes()["parent"] == middle.id
    figures = task.stats(with_children=True)
    assert (figures.sub_agents, figures.spent.calls) == (2, 5)


async def test_a_stored_conversation_is_no_sub_agent_of_a_later_tool(store):
    histories = store.histories.sync
    await agent_of(store, steps(0)).run("hello", conversation_id="middle")
    helper = agent_of(store, steps(0))

    async def ask_helper() -> str:
        loaded = await store.load("middle")
        return (await helper.run("how far?", conversation=loaded)).output

    def script(messages, number):
        return (
            said("done") if number else ModelResponse(parts=[ToolCallPart("ask_helper", {}, "c")])
        )

    lead = Agent(scripted(script), tools=[ask_helper], capabilities=[FoldlogSteps(store)])
    await lead.run("ask", conversation_id="task")
    assert "parent" not in histories[store.conversation("middle")].attributes()
    assert len(histories[store.conversation("middle")].view()) == 4


async def test_a_sub_agent_in_another_store_names_no_parent(store, tmp_path):
    with foldlog.open(tmp_path / "other.db") as others:
        other = FoldlogConversationStore(others)
        await agent_of(other, steps(0)).run("before", conversation_id="task")
        await delegating(store, other, ["middle", "leaf"]).run("how far?", conversation_id="task")
        assert "parent" not in others[other.conversation("middle")].attributes()
        assert others[other.conversation("leaf")].attributes()["parent"] == other.conversation(
            "middle"
        )


async def test_attributes_of_the_program_stay_before_the_tools(histories, store):
    named = FoldlogConversationStore(histories, attributes={"parent": "elsewhere", "user": "ann"})
    await delegating(store, named, ["middle", "leaf"]).run("how far?", conversation_id="task")
    attributes = store.histories.sync[named.conversation("middle")].attributes()
    assert attributes == {"parent": "elsewhere", "user": "ann", "runtime": "pydantic-ai"}
