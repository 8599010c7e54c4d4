"""``FoldlogSessionRepository``: equal to the SDK's own, and what agents do with it."""

import json
import random
from functools import partial

import pytest
from strands import Agent, tool
from strands.agent.conversation_manager import (
    SlidingWindowConversationManager,
    SummarizingConversationManager,
)
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType

import foldlog
from foldlog.adapters import strands
from foldlog.adapters.strands import FoldlogSessionRepository
from foldlog.eventstore import CondensationAction, ConversationErased
from foldlog.eventstore.maintenance import erase
from tests.adapters import contract
from tests.adapters.contract import (
    FILE,
    IMAGE,
    Runs,
    check_import,
    check_requests,
    condensations,
    holding,
    steps,
)
from tests.adapters.strands.scripted import ScriptedModel, call, parts, replies, said
from tests.between import before_next_call
from tests.sound import assert_sound

pytestmark = pytest.mark.anyio


SESSION = Session(session_id="s", session_type=SessionType.AGENT)


@pytest.fixture
def repository(histories):
    return FoldlogSessionRepository(histories)


VALUES = [value for value in contract.VALUES if value != "\ud800"]  # the SDK writes UTF-8


def user(text):
    return {"role": "user", "content": [said(text)]}


def any_content(choice):
    value = choice.choice(VALUES)
    return choice.choice(
        [
            {"text": choice.choice(["hi", "", "a\x00b", "é"])},
            {"toolUse": {"toolUseId": "c", "name": "f", "input": {"x": value}}},
            {
                "toolResult": {
                    "toolUseId": "c",
                    "status": "error",
                    "content": [{"text": "no"}, {"json": {"x": value}}],
                }
            },
            {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}},
            {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
            {"cachePoint": {"type": "default"}},
        ]
    )


def any_message(choice, number):
    contents = [any_content(choice) for _ in range(choice.choice([0, 1, 1, 2, 4]))]
    message = {"role": choice.choice(["user", "assistant"]), "content": contents}
    return SessionMessage.from_message(message, number)


def plain(value):
    return None if value is None else {**value.to_dict(), "updated_at": None}


async def test_random_operations_are_what_the_sdks_own_repository_does(repository, tmp_path):
    choice, theirs = random.Random(3), FileSessionManager("s", storage_dir=str(tmp_path))
    session = SESSION
    repository.create_session(session)
    counts = {"a": 0, "b": 0}
    for agent_id in counts:
        for each in (repository, theirs):
            each.create_agent("s", SessionAgent(agent_id, {}, {}))
    for _ in range(150):
        agent_id, what = choice.choice(list(counts)), choice.random()
        if what < 0.6:
            message = any_message(choice, counts[agent_id])
            counts[agent_id] += 1
            repository.create_message("s", agent_id, message)
            theirs.create_message("s", agent_id, message)
        elif what < 0.7:
            manager_state = {"removed_message_count": min(choice.choice([0, 2]), counts[agent_id])}
            agent = SessionAgent(
                agent_id, {"k": choice.choice(VALUES), "b": b"\x00"}, manager_state
            )
            read = []
            for each in (repository, theirs):
                each.update_agent("s", agent)
                read.append({**plain(each.read_agent("s", agent_id)), "created_at": None})
            assert read[0] == read[1]
        elif what < 0.9:
            limit, offset = choice.choice([None, 0, 2, 9]), choice.choice([0, 1, 7, 200])
            ours = repository.list_messages("s", agent_id, limit, offset)
            assert list(map(plain, ours)) == list(
                map(plain, theirs.list_messages("s", agent_id, limit, offset))
            )
        else:
            number = choice.randrange(counts[agent_id] + 2)
            ours, other = (
                each.read_message("s", agent_id, number) for each in (repository, theirs)
            )
            assert plain(ours) == plain(other)


async def test_what_does_not_exist_and_what_exists_is_refused(repository):
    assert repository.read_session("s") is None
    session = SESSION
    repository.create_session(session)
    assert repository.read_session("s") == session
    agent = SessionAgent("a", {}, {})
    for wrong in (
        lambda: repository.create_session(session),
        lambda: repository.update_agent("s", agent),
        lambda: repository.list_messages("s", "a"),
        lambda: repository.update_message(
            "s", "a", SessionMessage.from_message({"role": "user", "content": []}, 0)
        ),
        lambda: repository.delete_session("other"),
    ):
        with pytest.raises(SessionException, match="exist"):
            wrong()


async def test_a_state_that_did_not_change_is_not_stored_again(repository, histories):
    """The SDK updates an agent after each message."""
    repository.create_session(SESSION)
    repository.create_agent("s", SessionAgent("a", {"k": 1}, {"removed_message_count": 0}))
    history, other = (
        histories[repository.conversation("s", "a")],
        FoldlogSessionRepository(histories),
    )
    for number, (writer, value, added) in enumerate(
        [(repository, 1, 0), (other, 2, 1), (repository, 2, 0), (other, 2, 0)]
    ):
        message = SessionMessage.from_message(user("hi"), number)
        writer.create_message("s", "a", message)
        before = history.version()
        for _ in range(2):
            writer.update_agent("s", SessionAgent("a", {"k": value}, {"removed_message_count": 0}))
        assert history.version() - before == added
        assert repository.read_agent("s", "a").state == {"k": value}


async def test_a_session_whose_deletion_was_killed_is_deleted_again(
    repository, histories, monkeypatch
):
    repository.create_agent("s", SessionAgent("a", {}, {}))
    # it may be the younger one
    repository.create_session(SESSION)
    before = erase.erase
    with monkeypatch.context() as patched:
        patched.setattr(erase, "erase", lambda *which, **how: before(*which, **how) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repository.delete_session("s")
    repository.delete_session("s")
    assert repository.read_agent("s", "a") is None


async def test_a_message_that_is_redacted_is_gone(repository, histories):
    choice = random.Random(1)
    repository.create_agent("s", SessionAgent("a", {}, {}))
    for number in range(6):
        secret = {"role": "user", "content": [{"text": "a secret"}, {"text": "more of it"}]}
        message = (
            SessionMessage.from_message(secret, number)
            if number in (2, 5)
            else any_message(choice, number)
        )
        repository.create_message("s", "a", message)
    history = histories[repository.conversation("s", "a")]
    before = repository.list_messages("s", "a")
    for number in (2, 5):
        before[number].redact_message = user("taken out")
        repository.update_message("s", "a", before[number])
    now = repository.list_messages("s", "a")
    assert [each.message_id for each in now] == list(range(6))
    assert [each.to_message() for each in now] == [each.to_message() for each in before]
    assert repository.read_message("s", "a", 5).to_message()["content"] == [{"text": "taken out"}]
    assert "secret" not in str(list(history.events()))
    assert "secret" not in str(history.documents())
    assert "taken out" in str(history.view().to_messages()[-1]["content"])
    assert [each.message_id for each in repository.list_messages("s", "a", 2, 4)] == [4, 5]


async def test_what_has_no_text_is_redacted_and_summarized_too(repository, histories):
    """A guardrail redacts the results of tools, and a model may return an empty summary."""
    repository.create_agent("s", SessionAgent("a", {}, {}))
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    result = {"toolUseId": "c", "status": "success", "content": [{"text": "a secret"}]}
    texts = [("user", "go"), ("assistant", "fine"), ("user", "more")]
    messages = [{"role": role, "content": [{"text": text}]} for role, text in texts]
    calls = {"role": "assistant", "content": [thought, call("f", {"x": 1}, "c")]}
    for number, message in enumerate(
        [*messages, calls, {"role": "user", "content": [{"toolResult": result}]}]
    ):
        repository.create_message("s", "a", SessionMessage.from_message(message, number))
    *before, last = repository.list_messages("s", "a")
    last.redact_message = {
        "role": "user",
        "content": [{"toolResult": {**result, "content": [{"text": "no"}]}}],
    }
    repository.update_message("s", "a", last)
    summary = user(" ")
    repository.update_agent(
        "s", SessionAgent("a", {}, {"removed_message_count": 2, "summary_message": summary})
    )
    history = histories[repository.conversation("s", "a")]
    assert "secret" not in f"{[*history.events()]} {history.documents()}"
    now = repository.list_messages("s", "a")
    assert [each.to_message() for each in now] == [each.to_message() for each in [*before, last]]
    assert [message["role"] for message in history.view().to_messages()] == [
        "user",
        "assistant",
        "tool",
    ]


def script_of(script):
    return lambda messages, number: replies(script(number))


class TestKeeps(Runs):
    runtime = "strands"

    def opened(self, url, **options):
        return FoldlogSessionRepository(url, **options)

    async def add(self, store, *names):
        """The SDK's call blocks its thread, so it has one of its own here."""
        await store.histories.pool.run(partial(self._add, store, names), finish=True)

    def _add(self, store, names):
        if store.read_agent("s", "a") is None:
            store.create_agent("s", SessionAgent("a", {}, {}))
        for number, name in enumerate(names):
            message = user(name)
            store.create_message("s", "a", SessionMessage.from_message(message, number))

    async def names(self, store):
        return [each.to_message()["content"][0]["text"] for each in store.list_messages("s", "a")]

    def model(self, script):
        return ScriptedModel(script_of(script))

    async def run(self, store, model, prompt, *tools):
        await agent_of(store, model, tools).invoke_async(prompt)

    def parts(self, prompt):
        return parts(prompt)

    async def stored_parts(self, store):
        return parts(each.to_message() for each in store.list_messages("s", "a"))


# -- agents
# --------------------------------------------------------------------------------------------------


def measure(unit: str) -> str:
    """Measure."""
    return f"9 {unit}"


def agent_of(repository, model, tools=(measure,), **settings):
    manager = RepositorySessionManager("s", repository)
    return Agent(
        model=model,
        tools=[*map(tool, tools)],
        agent_id="a",
        session_manager=manager,
        hooks=[repository],
        callback_handler=None,
        **settings,
    )


def shown(history):
    """What the View has, as a server gets it."""
    from strands.types.session import decode_bytes_values

    from foldlog.adapters._shared import from_plain, shown_records

    summaries = {each.id: each.metadata.get("message") for each in history.view().condensations}
    messages = []
    for events, records in shown_records(history.view(), "strands", history):
        summary = summaries.get(getattr(events[0], "summary_of", None))
        messages += [summary] if summary else [record["message"] for record in records]
    return parts(decode_bytes_values(from_plain(messages)))


OF_THE_SDK = {
    "window": lambda: SlidingWindowConversationManager(window_size=12, per_turn=True),
    "pins": lambda: SlidingWindowConversationManager(window_size=8, per_turn=True, pin_first=3),
    "summaries and pins": lambda: SummarizingConversationManager(0.5, 4, pin_first=2),
    "summaries": lambda: SummarizingConversationManager(
        summary_ratio=0.5, preserve_recent_messages=4
    ),
}


WHERE = [
    ("sqlite", "window"),
    ("postgres", "summaries"),
    ("memory", "pins"),
    ("memory", "summaries and pins"),
]


@pytest.mark.parametrize("url, how", WHERE, indirect=["url"])
async def test_the_view_is_what_the_model_was_sent_at_each_call(url, how):
    choice = random.Random(how)
    with foldlog.open(url) as histories:
        repository = FoldlogSessionRepository(histories)
        model = ScriptedModel(script_of(steps(choice)), messages_max=14)
        history = histories[repository.conversation("s", "a")]
        agent = agent_of(repository, model, conversation_manager=OF_THE_SDK[how]())
        while len(model.prompts) < 200:
            # another process goes on: the SDK loses its pins
            if choice.random() < 0.1 and "pins" not in how:
                agent = agent_of(repository, model, conversation_manager=OF_THE_SDK[how]())
            await agent.invoke_async(f"step {len(model.prompts)}")
            sent, view = parts(model.prompts[-1]), shown(history)
            assert "pins" in how or view == [*sent, *parts([agent.messages[-1]])][-len(view) :]
            assert view == parts(agent.messages)
        assert len(condensations(history)) >= 5
        assert len([event for event in history.events() if event.origin]) > 2 * len(history.view())
        assert list(history.export()) == list(history.export("strands"))
        assert_sound(histories.store)


class Graph:
    """Agents that work together."""

    id = "g"

    def serialize_state(self):
        return {"nodes": ["a"]}


async def test_agents_that_work_together_are_kept(repository):
    repository.create_session(SESSION)
    assert repository.read_multi_agent("s", "g") is None
    with pytest.raises(SessionException, match="does not exist"):
        repository.update_multi_agent("s", Graph())
    repository.create_multi_agent("s", Graph())
    repository.update_multi_agent("s", Graph())
    assert repository.read_multi_agent("s", "g") == {"nodes": ["a"]}


# -- what a live agent holds
# ------------------------------------------------------------------------------------------


def summarizing(repository, model):
    return agent_of(
        repository, model, (), conversation_manager=SummarizingConversationManager(0.5, 2)
    )


async def summarized(histories):
    """An agent whose summary quotes its first message, its history, and its model, which quotes
    what it summarizes.
    """
    repository = FoldlogSessionRepository(histories)
    model = ScriptedModel(lambda messages, number: [said(f"reply {number}")], messages_max=6)
    model.summary = lambda messages, number: "card Kurt" if "Kurt" in str(messages) else "no card"
    agent = summarizing(repository, model)
    for text in ("card Kurt", "one", "two", "three"):
        await agent.invoke_async(text)
    return agent, histories[repository.conversation("s", "a")], model


async def test_a_redaction_with_summaries_leaves_none_in_the_state(histories):
    _, history, model = await summarized(histories)
    assert "card Kurt" in str(history.view().to_messages())
    history.redact(holding(history, "Kurt")[0], reason="asked to", with_summaries=True)
    assert holding(history, "Kurt") == []
    restarted = summarizing(FoldlogSessionRepository(histories), model)
    assert restarted.messages[0]["content"] == [{"text": "[redacted]"}]
    await restarted.invoke_async("four")
    assert "Kurt" not in str(model.prompts[-1])
    assert shown(history) == parts(restarted.messages)


async def test_an_agent_that_holds_redacted_content_does_not_store_it_again(histories):
    agent, history, model = await summarized(histories)
    for event_id in reversed(holding(history, "Kurt")):
        history.redact(event_id, reason="asked to", with_summaries=True)
    model.messages_max, version = None, history.version()
    agent.state.set("seen", 1)
    await agent.invoke_async("no new summary")
    assert not any(isinstance(event, CondensationAction) for event in history.events(version))
    model.messages_max = 6
    for number in range(4):
        await agent.invoke_async(f"more {number}")
    assert "card Kurt" in str(agent.messages[0])
    assert [
        event.summary for event in history.events(version) if isinstance(event, CondensationAction)
    ]
    assert holding(history, "Kurt") == []
    restarted = summarizing(FoldlogSessionRepository(histories), model)
    for number in range(4):
        await restarted.invoke_async(f"again {number}")
    assert history.view().to_messages()[0]["content"] == "no card"


@pytest.mark.parametrize("when", ["before the update", "during the update"])
async def test_a_summary_in_a_fork_quotes_nothing_that_was_redacted_in_its_parent(
    repository, histories, monkeypatch, when
):
    repository.create_session(SESSION)
    repository.create_agent("s", SessionAgent("a", {}, {"removed_message_count": 0}))
    for number, text in enumerate(("marigold", "hello")):
        repository.create_message("s", "a", SessionMessage.from_message(user(text), number))
    parent = histories[repository.conversation("s", "a")]
    fork = parent.fork(id=repository.conversation("f", "a"))
    assert repository.read_agent("f", "a") is not None
    version = fork.version()
    redact = lambda: parent.redact(holding(parent, "marigold"), reason="asked to")  # noqa: E731
    if when == "before the update":
        redact()
    else:
        before_next_call(monkeypatch, strands, "change_of_prompt", redact)
    state = {"removed_message_count": 1, "summary_message": user("about marigold")}
    repository.update_agent("f", SessionAgent("a", {}, state))
    assert [event.content for event in fork.view()] == ["[redacted]", "hello"]
    assert "marigold" not in repr(list(fork.events(version)))


def test_an_update_after_a_redaction_reads_no_events(repository, monkeypatch):
    """The SDK updates the agent after each message."""
    repository.create_session(SESSION)
    repository.create_agent("s", SessionAgent("a", {}, {"removed_message_count": 0}))
    repository.create_message("s", "a", SessionMessage.from_message(user("marigold"), 0))
    history = repository._held[repository.conversation("s", "a")].history
    history.redact(holding(history, "marigold"), reason="asked to")
    monkeypatch.setattr(history, "events", lambda *_: pytest.fail("events were read"))
    repository.update_agent("s", SessionAgent("a", {"seen": 1}, {"removed_message_count": 0}))
    assert repository.read_agent("s", "a").state == {"seen": 1}


@pytest.mark.parametrize("how", ["erase", "delete_session"])
@pytest.mark.parametrize("begins_again", [False, True])
async def test_an_agent_of_an_erased_conversation_writes_nothing(histories, how, begins_again):
    agent, history, model = await summarized(histories)
    model.messages_max = None
    if how == "erase":
        histories.erase(history.id, reason="asked to")
    else:
        FoldlogSessionRepository(histories).delete_session("s")
    if begins_again:
        await summarizing(FoldlogSessionRepository(histories), model).invoke_async("hello")
    agent.state.set("seen", 1)
    with pytest.raises(ConversationErased):
        await agent.invoke_async("ghost")
    with pytest.raises(ConversationErased):
        agent._session_manager.sync_agent(agent)
    if begins_again:
        now = histories[history.id]
        assert [message["content"] for message in now.view().to_messages()] == ["hello", "reply 4"]
        assert holding(now, "Kurt") == []
    else:
        assert history.id not in histories


async def test_states_of_agents_that_work_together_are_not_written_after_an_erasure(histories):
    first, second = FoldlogSessionRepository(histories), FoldlogSessionRepository(histories)
    session = SESSION
    for repository in (first, second):
        repository.create_session(session)
        repository.create_multi_agent("s", Graph())
        if repository is first:
            second.delete_session("s")
    with pytest.raises(ConversationErased):
        first.update_multi_agent("s", Graph())


async def test_what_replaced_a_message_stays_in_the_view_until_that_message_is_removed(histories):
    repository = FoldlogSessionRepository(histories)
    model = ScriptedModel(lambda messages, number: [said(f"reply {number}")])
    agent = agent_of(
        repository, model, (), conversation_manager=SlidingWindowConversationManager(window_size=6)
    )
    history, answers = histories[repository.conversation("s", "a")], []
    for number in range(7):
        await agent.invoke_async("a secret" if number == 2 else f"step {number}")
        assert shown(history) == parts(agent.messages)
        answers.append("taken out" in str(agent.messages))
    assert set(answers[2:]) == {True, False}
    assert holding(history, "secret") == []


FILES = [
    {"image": {"format": "png", "source": {"bytes": IMAGE}}},
    {"document": {"name": "file", "format": "pdf", "source": {"bytes": FILE}}},
]


def result(name, content, status="success"):
    return {"toolResult": {"toolUseId": name, "status": status, "content": content}}


def test_a_view_shows_the_images_of_messages_of_the_sdk(histories):
    contents = [
        FILES,
        [call("look", {"at": 1}, "c1")],
        [result("c1", [{"text": "see"}, *FILES, {"json": {"a": 1}}])],
    ]
    messages = [
        {"role": "assistant" if place == 1 else "user", "content": each}
        for place, each in enumerate(contents)
    ]
    written = [
        SessionMessage.from_message(each, place).to_dict() for place, each in enumerate(messages)
    ]
    check_import(histories, "strands", json.dumps(written), 2)


async def test_a_reply_names_its_request_with_the_tools_and_the_prompt(histories):
    repository = FoldlogSessionRepository(histories)
    model = ScriptedModel(lambda _, number: [said("9 m") if number else call("measure")])
    await agent_of(repository, model, system_prompt="You measure.").invoke_async("measure")
    check_requests(histories[repository.conversation("s", "a")])
