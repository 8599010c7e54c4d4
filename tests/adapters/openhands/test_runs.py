"""What conversations of the OpenHands SDK do with ``FoldlogFileStore``: runs, kills, resumption,
branches.
"""

import asyncio
import json
import random
from uuid import UUID, uuid4

import pytest
from openhands.sdk.context.condenser import LLMSummarizingCondenser
from openhands.sdk.event import MessageEvent

from foldlog.adapters.openhands import FoldlogCondenser, FoldlogFileStore
from tests.adapters.contract import condensations
from tests.adapters.model_server import Reply
from tests.adapters.openhands.agents import conversation, scripted, served
from tests.adapters.openhands.chat_server import ChatServer, parts_of, work
from tests.sound import assert_sound

ID = UUID("6b0d6b5f-1f0e-4d55-9d0e-3a3f0a0f1c11")


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def serve():
    """Start a server that answers by a script."""
    servers = []

    def start(script, **options):
        servers.append(ChatServer(script, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def dumped(events):
    return [event.model_dump_json() for event in events]


def shown(talk):
    """Return the View of foldlog and the View of the SDK, both as the SDK's ids."""
    ours = [event.origin.id for event in talk.state._fs.history.view()]
    return ours, [event.id for event in talk.state.view.events]


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_conversation_resumes_as_it_was(url, workspace):
    with FoldlogFileStore(url, ID) as store:
        talk = conversation(store, ID, scripted(("c1", "this"), ("c2", "that"), "done"), workspace)
        talk.send_message("go")
        talk.run()
        events = dumped(talk.state.events)
        state = json.loads(talk.state.model_dump_json(exclude_none=True))
        assert json.loads(store.read("base_state.json")) == state
        talk.close()
    with FoldlogFileStore(url, ID) as store:
        talk = conversation(store, ID, scripted("again"), workspace)
        assert dumped(talk.state.events) == events
        assert json.loads(talk.state.model_dump_json(exclude_none=True))["stats"] == state["stats"]
        talk.send_message("more")
        talk.run()
        ours, theirs = shown(talk)
        assert ours == theirs
        assert store.history.view().to_messages()[-1]["content"] == "again"
        assert_sound(store.histories.sync.store)
        talk.close()


@pytest.mark.parametrize("condenses", ["foldlog", "the SDK"])
def test_the_view_equals_the_prompt_of_random_steps(histories, workspace, serve, condenses):
    """With parallel calls, branches that are left and entered again, condensations and
    condensations on request.
    """
    choice = random.Random(condenses)
    compared = []
    moves = 0
    store = FoldlogFileStore(histories, ID)

    def script(messages, number):
        if "Now summarize the events" in parts_of(messages)[-1][1]:
            return Reply(f"summary {number}")
        compared.append((parts_of(store.history.view().to_messages()), parts_of(messages)))
        if choice.random() < 0.4:
            return Reply(f"answer {number}")
        calls = range(choice.choice([1, 1, 2]))
        return Reply(calls=[work(f"c{number}-{n}", "this") for n in calls])

    server = serve(script, messages_max=40)
    condenser = FoldlogCondenser(config={"type": "digest", "max_size": 24, "keep_first": 2})
    if condenses == "the SDK":
        model = served(server.url).model_copy(update={"usage_id": "condenser"})
        condenser = LLMSummarizingCondenser(llm=model, max_size=24, keep_first=2)
    talk = conversation(store, ID, served(server.url), workspace, condenser)
    while len(compared) < 200:
        if compared and choice.random() < 0.2:
            heads = [event.id for event in talk.state.events if isinstance(event, MessageEvent)]
            talk.navigate_to(choice.choice(heads[-12:]))
            moves += 1
        elif len(talk.state.view) > 16 and choice.random() < 0.2:
            talk.condense()
        talk.send_message(f"turn {len(compared)}")
        talk.run()
    talk.close()
    for view, messages in compared:
        assert view == messages
    assert server.problems == []
    assert moves > 5
    assert len(condensations(store.history)) > 5


def test_a_cancelled_run_leaves_the_sdks_events(histories, workspace):
    for number in range(6):
        conversation_id = uuid4()
        store = FoldlogFileStore(histories, conversation_id)
        talk = conversation(
            store,
            conversation_id,
            scripted(*[(f"c{n}", "wait") for n in range(9)], "done"),
            workspace,
        )
        talk.send_message("go")

        async def cancelled(talk=talk, number=number):
            run = asyncio.ensure_future(talk.arun())
            await asyncio.sleep(0.05 * number)
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)

        asyncio.run(cancelled())
        events = dumped(talk.state.events)
        again = conversation(
            FoldlogFileStore(histories, conversation_id), conversation_id, scripted(), workspace
        )
        assert dumped(again.state.events) == events
        assert again.state.leaf_event_id == talk.state.leaf_event_id
        talk.close()
        again.close()


def test_a_fork_of_the_sdk_is_in_memory(histories, workspace):
    """``fork`` writes to files, or to memory: if this fails, the page on adapters is to be
    changed.
    """
    store = FoldlogFileStore(histories, ID)
    talk = conversation(store, ID, scripted(("c1", "this"), "done"), workspace)
    talk.send_message("go")
    talk.run()
    fork = talk.fork()
    assert not isinstance(fork.state._fs, FoldlogFileStore)
    assert list(histories) == [f"openhands/{ID}"]
    fork.close()
    talk.close()
