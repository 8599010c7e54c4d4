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
from strands.types.session import (
    Session,
    SessionAgent,
    SessionMessage,
    SessionType,
    decode_bytes_values,
)

import foldlog
from foldlog.adapters import strands
from foldlog.adapters._shared import from_plain, shown_records
from foldlog.adapters.strands import FoldlogSessionRepository
from foldlog.eventstore import ConversationErased, InvalidArgument
from foldlog.eventstore.maintenance import erase
from foldlog.projections.condensations import StoredCondensations
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


@pytest.fixture
def stored(repository):
    """A repository with a session and its agent ``a``."""
    repository.create_session(SESSION)
    repository.create_agent("s", agent_state())
    return repository


def agent_state(state=None, removed=0, **manager_state):
    """Return what the SDK stores of an agent, with so many messages removed."""
    return SessionAgent("a", state or {}, {"removed_message_count": removed, **manager_state})


def add(repository, number, message):
    repository.create_message("s", "a", SessionMessage.from_message(message, number))


def history_of(repository):
    return repository.histories.sync[repository.conversation("s", "a")]


VALUES = [value for value in contract.VALUES if value != "\ud800"]  # the SDK writes UTF-8


def user(*texts):
    return {"role": "user", "content": [*map(said, texts)]}


THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}


def any_content(choice):
    value = choice.choice(VALUES)
    return choice.choice(
        [
            said(choice.choice(["hi", "", "a\x00b", "é"])),
            call("f", {"x": value}),
            result("c", [said("no"), {"json": {"x": value}}], "error"),
            {"image": {"format": "png", "source": {"bytes": b"\x00\xff"}}},
            THOUGHT,
            {"cachePoint": {"type": "default"}},
        ]
    )


def any_message(choice, number):
    contents = [any_content(choice) for _ in range(choice.choice([0, 1, 1, 2, 4]))]
    message = {"role": choice.choice(["user", "assistant"]), "content": contents}
    return SessionMessage.from_message(message, number)


def plain(value):
    return None if value is None else {**value.to_dict(), "updated_at": None}


async def test_random_operations_equal_the_sdks_repository(repository, tmp_path):
    choice = random.Random(3)
    theirs = FileSessionManager("s", storage_dir=str(tmp_path))
    repository.create_session(SESSION)
    counts = {"a": 0, "b": 0}
    for agent_id in counts:
        for each in (repository, theirs):
            each.create_agent("s", SessionAgent(agent_id, {}, {}))
    for _ in range(150):
        agent_id = choice.choice(list(counts))
        what = choice.random()
        if what < 0.6:
            message = any_message(choice, counts[agent_id])
            counts[agent_id] += 1
            for each in (repository, theirs):
                each.create_message("s", agent_id, message)
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
            limit = choice.choice([None, 0, 2, 9])
            offset = choice.choice([0, 1, 7, 200])
            ours, other = (
                [*map(plain, each.list_messages("s", agent_id, limit, offset))]
                for each in (repository, theirs)
            )
            assert ours == other
        else:
            number = choice.randrange(counts[agent_id] + 2)
            ours, other = (
                each.read_message("s", agent_id, number) for each in (repository, theirs)
            )
            assert plain(ours) == plain(other)


async def test_missing_and_duplicate_names_are_refused(repository):
    assert repository.read_session("s") is None
    repository.create_session(SESSION)
    assert repository.read_session("s") == SESSION
    for wrong, arguments in (
        (repository.create_session, [SESSION]),
        (repository.update_agent, ["s", agent_state()]),
        (repository.list_messages, ["s", "a"]),
        (repository.update_message, ["s", "a", SessionMessage.from_message(user("hi"), 0)]),
        (repository.delete_session, ["other"]),
        (repository.update_multi_agent, ["s", Graph()]),
    ):
        with pytest.raises(SessionException, match="exist"):
            wrong(*arguments)


async def test_an_unchanged_state_is_not_stored_again(stored, histories):
    """The SDK updates an agent after each message."""
    history = history_of(stored)
    other = FoldlogSessionRepository(histories)
    for number, (writer, state, added) in enumerate(
        [(stored, {}, 0), (other, {"k": 2}, 1), (stored, {"k": 2}, 0), (other, {"k": 2}, 0)]
    ):
        add(writer, number, user("hi"))
        before = history.version()
        for _ in range(2):
            writer.update_agent("s", agent_state(state))
        assert history.version() - before == added
        assert stored.read_agent("s", "a").state == state


@pytest.mark.parametrize("summary", [None, "earlier: hi"])
async def test_an_unchanged_state_after_a_condensation_is_not_stored_again(stored, summary):
    history = history_of(stored)
    for number in range(4):
        add(stored, number, user(f"hi {number}"))
    summary_message = None if summary is None else {"role": "user", "content": [said(summary)]}
    condensed = partial(agent_state, removed=2, summary_message=summary_message)
    stored.update_agent("s", condensed())
    assert len(condensations(history)) == 1
    before = history.version()
    for _ in range(3):
        stored.update_agent("s", condensed())
    assert history.version() == before
    stored.update_agent("s", condensed({"k": 2}))
    assert history.version() == before + 1
    agent = stored.read_agent("s", "a")
    assert agent.state == {"k": 2}
    assert agent.conversation_manager_state.get("summary_message") == summary_message


@pytest.mark.parametrize(
    "before, after", [(0, False), (1, True), (1, 1.0), ([0, [1]], [False, [True]])]
)
@pytest.mark.parametrize("removed", [0, 2])
async def test_equal_values_of_other_types_are_stored(stored, before, after, removed):
    add(stored, 0, user("hi"))
    add(stored, 1, user("go on"))
    add(stored, 2, user("and on"))
    for value in (before, after):
        stored.update_agent("s", agent_state({"k": value}, removed=removed))
    assert repr(stored.read_agent("s", "a").state) == repr({"k": after})


@pytest.mark.parametrize("is_summary_first", [True, False])
async def test_an_unchanged_state_after_a_redaction_is_stored_once(stored, is_summary_first):
    history = history_of(stored)
    for number in range(4):
        add(stored, number, user(f"hi {number}"))
    summary = {"role": "user", "content": [said("earlier: hi 0")]}
    condensed = partial(agent_state, removed=2, summary_message=summary)
    if is_summary_first:
        stored.update_agent("s", condensed())
    history.redact(0, reason="asked for", with_summaries=True)
    stored.update_agent("s", condensed())
    before = history.version()
    for _ in range(2):
        stored.update_agent("s", condensed())
    assert history.version() == before


async def test_a_summary_that_the_manager_dropped_is_gone(stored):
    for number in range(4):
        add(stored, number, user(f"hi {number}"))
    summary = {"role": "user", "content": [said("earlier: hi 0")]}
    stored.update_agent("s", agent_state(removed=2, summary_message=summary))
    for _ in range(2):
        stored.update_agent("s", agent_state(removed=0, summary_message=None))
        manager = stored.read_agent("s", "a").conversation_manager_state
        assert manager.get("summary_message") is None


async def test_a_deletion_can_be_repeated_after_a_kill(repository, monkeypatch):
    repository.create_agent("s", agent_state())
    # it may be the younger one
    repository.create_session(SESSION)
    before = erase.erase
    with monkeypatch.context() as patched:
        patched.setattr(erase, "erase", lambda *which, **how: before(*which, **how) and 1 / 0)
        with pytest.raises(ZeroDivisionError):
            repository.delete_session("s")
    repository.delete_session("s")
    assert repository.read_agent("s", "a") is None


def messages_of(listed):
    return [each.to_message() for each in listed]


async def test_a_redacted_message_is_gone(stored):
    choice = random.Random(1)
    for number in range(6):
        message = any_message(choice, number)
        if number in (2, 5):
            secret = user("a secret", "more of it")
            message = SessionMessage.from_message(secret, number)
        stored.create_message("s", "a", message)
    before = stored.list_messages("s", "a")
    for number in (2, 5):
        before[number].redact_message = user("taken out")
        stored.update_message("s", "a", before[number])
    now = stored.list_messages("s", "a")
    history = history_of(stored)
    assert [each.message_id for each in now] == list(range(6))
    assert messages_of(now) == messages_of(before)
    assert stored.read_message("s", "a", 5).to_message() == user("taken out")
    assert "secret" not in f"{[*history.events()]} {history.documents()}"
    assert "taken out" in str(history.view().to_messages()[-1]["content"])
    assert [each.message_id for each in stored.list_messages("s", "a", 2, 4)] == [4, 5]


async def test_results_are_redacted_and_summaries_may_be_empty(stored):
    """A guardrail redacts the results of tools, and a model may return an empty summary."""
    messages = [
        user("go"),
        {"role": "assistant", "content": [said("fine")]},
        user("more"),
        {"role": "assistant", "content": [THOUGHT, call("f", {"x": 1})]},
        {"role": "user", "content": [result("c", [said("a secret")])]},
    ]
    for number, message in enumerate(messages):
        add(stored, number, message)
    *before, last = stored.list_messages("s", "a")
    last.redact_message = {"role": "user", "content": [result("c", [said("no")])]}
    stored.update_message("s", "a", last)
    stored.update_agent("s", agent_state(removed=2, summary_message=user(" ")))
    history = history_of(stored)
    assert "secret" not in f"{[*history.events()]} {history.documents()}"
    assert messages_of(stored.list_messages("s", "a")) == messages_of([*before, last])
    roles = [message["role"] for message in history.view().to_messages()]
    assert roles == ["user", "assistant", "tool"]


def script_of(script):
    return lambda messages, number: replies(script(number))


class TestKeeps(Runs):
    runtime = "strands"

    def opened(self, url, **options):
        return FoldlogSessionRepository(url, **options)

    async def add(self, store, *names):
        """Run the SDK's call in another thread, because the call blocks its thread."""
        await store.histories.pool.run(partial(self._add, store, names), finish=True)

    def _add(self, store, names):
        if store.read_agent("s", "a") is None:
            store.create_agent("s", agent_state())
        for number, name in enumerate(names):
            add(store, number, user(name))

    async def names(self, store):
        messages = messages_of(store.list_messages("s", "a"))
        return [message["content"][0]["text"] for message in messages]

    def model(self, script):
        return ScriptedModel(script_of(script))

    async def run(self, store, model, prompt, *tools):
        await agent_of(store, model, tools).invoke_async(prompt)

    def parts(self, prompt):
        return parts(prompt)

    async def stored_parts(self, store):
        return parts(messages_of(store.list_messages("s", "a")))


# -- agents


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


def test_hooks_need_a_session_manager(repository):
    agent = Agent(model=ScriptedModel(lambda *_: said("hi")), hooks=[repository])
    with pytest.raises(InvalidArgument, match="has no session manager"):
        agent("hello")


def shown(history):
    """Return what the View has, as a server gets it."""
    summaries = {
        condensation.id: condensation.metadata.get("message")
        for condensation in history.view().condensations
    }
    messages = []
    for events, records in shown_records(history.view(), "strands", history):
        summary = summaries.get(getattr(events[0], "summary_of", None))
        messages += [summary] if summary else [record["message"] for record in records]
    return parts(decode_bytes_values(from_plain(messages)))


def test_removing_messages_reads_only_new_messages(stored, monkeypatch):
    read = []

    def count_events(events, *others):
        events = [*events]
        read.append(len(events))
        return shown_records(events, *others)

    monkeypatch.setattr(strands, "shown_records", count_events)
    monkeypatch.setattr(StoredCondensations, "__iter__", pytest.fail)
    for number in range(20):
        add(stored, number, user(f"{number}"))
        stored.update_agent("s", agent_state(removed=max(0, number - 4)))
    assert sum(read) == 20
    assert [event.content for event in history_of(stored).view()] == ["15", "16", "17", "18", "19"]


WINDOW = partial(SlidingWindowConversationManager, per_turn=True)
SUMMARIES = partial(SummarizingConversationManager, 0.5, 4)


@pytest.mark.parametrize(
    "url, manager, pins",
    [
        ("sqlite", partial(WINDOW, window_size=12), {}),
        ("postgres", SUMMARIES, {}),
        ("memory", partial(WINDOW, window_size=8), {"pin_first": 3}),
        ("memory", SUMMARIES, {"pin_first": 2}),
    ],
    indirect=["url"],
)
async def test_the_view_equals_the_prompt_of_each_call(url, manager, pins):
    choice = random.Random(3)
    with foldlog.open(url) as histories:
        repository = FoldlogSessionRepository(histories)
        model = ScriptedModel(script_of(steps(choice)), messages_max=14)
        history = history_of(repository)
        agent = None
        while len(model.prompts) < 200:
            # another process goes on: the SDK loses its pins
            if agent is None or (choice.random() < 0.1 and not pins):
                agent = agent_of(repository, model, conversation_manager=manager(**pins))
            await agent.invoke_async(f"step {len(model.prompts)}")
            sent = parts(model.prompts[-1])
            view = shown(history)
            assert pins or view == [*sent, *parts([agent.messages[-1]])][-len(view) :]
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


async def test_the_state_of_a_graph_is_stored(repository):
    repository.create_session(SESSION)
    assert repository.read_multi_agent("s", "g") is None
    repository.create_multi_agent("s", Graph())
    repository.update_multi_agent("s", Graph())
    assert repository.read_multi_agent("s", "g") == {"nodes": ["a"]}


# -- what a live agent holds


def numbered(messages_max=None):
    """Return a model that numbers its replies."""
    return ScriptedModel(lambda messages, number: [said(f"reply {number}")], messages_max)


def summarizing(repository, model):
    manager = SummarizingConversationManager(0.5, 2)
    return agent_of(repository, model, (), conversation_manager=manager)


async def summarized(histories):
    """Return an agent whose summary quotes its first message, its history, and its model, which
    quotes what it summarizes.
    """
    repository = FoldlogSessionRepository(histories)
    model = numbered(6)
    model.summary = lambda messages, number: "card Kurt" if "Kurt" in str(messages) else "no card"
    agent = summarizing(repository, model)
    for text in ("card Kurt", "one", "two", "three"):
        await agent.invoke_async(text)
    return agent, history_of(repository), model


async def test_a_redaction_with_summaries_covers_the_state(histories):
    _, history, model = await summarized(histories)
    assert "card Kurt" in str(history.view().to_messages())
    history.redact(holding(history, "Kurt")[0], reason="asked to", with_summaries=True)
    assert holding(history, "Kurt") == []
    restarted = summarizing(FoldlogSessionRepository(histories), model)
    assert restarted.messages[0]["content"] == [{"text": "[redacted]"}]
    await restarted.invoke_async("four")
    assert "Kurt" not in str(model.prompts[-1])
    assert shown(history) == parts(restarted.messages)


async def test_a_live_agent_restores_no_redacted_text(histories):
    agent, history, model = await summarized(histories)
    for event_id in reversed(holding(history, "Kurt")):
        history.redact(event_id, reason="asked to", with_summaries=True)
    model.messages_max = None
    before = len(condensations(history))
    agent.state.set("seen", 1)
    await agent.invoke_async("no new summary")
    assert len(condensations(history)) == before
    model.messages_max = 6
    for number in range(4):
        await agent.invoke_async(f"more {number}")
    assert "card Kurt" in str(agent.messages[0])
    assert len(condensations(history)) > before
    assert holding(history, "Kurt") == []
    restarted = summarizing(FoldlogSessionRepository(histories), model)
    for number in range(4):
        await restarted.invoke_async(f"again {number}")
    assert history.view().to_messages()[0]["content"] == "no card"


@pytest.mark.parametrize("when", ["before the update", "during the update"])
async def test_a_forks_summary_quotes_no_redacted_text(stored, monkeypatch, when):
    for number, text in enumerate(("marigold", "hello")):
        add(stored, number, user(text))
    parent = history_of(stored)
    fork = parent.fork(id=stored.conversation("f", "a"))
    assert stored.read_agent("f", "a") is not None
    version = fork.version()
    redact = lambda: parent.redact(holding(parent, "marigold"), reason="asked to")  # noqa: E731
    if when == "before the update":
        redact()
    else:
        before_next_call(monkeypatch, strands, "change_of_prompt", redact)
    stored.update_agent("f", agent_state(removed=1, summary_message=user("about marigold")))
    assert [event.content for event in fork.view()] == ["[redacted]", "hello"]
    assert "marigold" not in repr(list(fork.events(version)))


def test_an_update_after_a_redaction_reads_no_events(stored, monkeypatch):
    """The SDK updates the agent after each message."""
    add(stored, 0, user("marigold"))
    history = stored._held[stored.conversation("s", "a")].history
    history.redact(holding(history, "marigold"), reason="asked to")
    monkeypatch.setattr(history, "events", lambda *_: pytest.fail("events were read"))
    stored.update_agent("s", agent_state({"seen": 1}))
    assert stored.read_agent("s", "a").state == {"seen": 1}


@pytest.mark.parametrize("how", ["erase", "delete_session"])
@pytest.mark.parametrize("begins_again", [False, True])
async def test_a_live_agent_writes_nothing_after_an_erasure(histories, how, begins_again):
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


async def test_a_graph_writes_nothing_after_an_erasure(histories):
    first = FoldlogSessionRepository(histories)
    second = FoldlogSessionRepository(histories)
    for repository in (first, second):
        repository.create_session(SESSION)
        repository.create_multi_agent("s", Graph())
        if repository is first:
            second.delete_session("s")
    with pytest.raises(ConversationErased):
        first.update_multi_agent("s", Graph())


async def test_a_replaced_message_stays_until_its_removal(repository):
    manager = SlidingWindowConversationManager(window_size=6)
    agent = agent_of(repository, numbered(), (), conversation_manager=manager)
    history = history_of(repository)
    answers = []
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


def test_a_view_shows_the_sdks_images(histories):
    messages = [
        {"role": "user", "content": FILES},
        {"role": "assistant", "content": [call("look", {"at": 1}, "c1")]},
        {
            "role": "user",
            "content": [result("c1", [said("see"), *FILES, {"json": {"a": 1}}])],
        },
    ]
    written = [
        SessionMessage.from_message(message, place).to_dict()
        for place, message in enumerate(messages)
    ]
    check_import(histories, "strands", json.dumps(written), 2)


async def test_a_reply_names_its_request(repository):
    model = ScriptedModel(lambda _, number: [said("9 m") if number else call("measure")])
    await agent_of(repository, model, system_prompt="You measure.").invoke_async("measure")
    check_requests(history_of(repository))
