"""``FoldlogFileStore``: the SDK's log and state in it are what they are in the SDK's own stores."""

import json
import random
import threading
from functools import partial
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from openhands.sdk.conversation.event_store import EventLog
from openhands.sdk.event import (
    ActionEvent,
    AgentErrorEvent,
    ConversationStateUpdateEvent,
    MessageEvent,
    ObservationEvent,
    PauseEvent,
)
from openhands.sdk.event.condenser import Condensation, CondensationRequest
from openhands.sdk.io import InMemoryFileStore, LocalFileStore
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM

from foldlog.adapters.openhands import FoldlogFileStore
from foldlog.eventstore import (
    Annotation,
    DocumentChanges,
    InvalidArgument,
    InvalidEvent,
    Retraction,
)
from tests.adapters.contract import Runs
from tests.adapters.openhands import paying
from tests.adapters.openhands.agents import (
    TOOLS,
    WorkAction,
    WorkObservation,
    conversation,
    scripted,
    served,
)
from tests.adapters.openhands.chat_server import ChatServer, parts_of, reply
from tests.sound import assert_sound

TEXTS = ["", "hi", "a\x00b", "é \U0001f600", '{"a": [1, null]}', "  x\n" * 20]


@pytest.fixture
def store(histories):
    return FoldlogFileStore(histories, "c1")


@pytest.mark.parametrize("is_resumed", [False, True])
def test_calls_repeated_in_a_reply_run_once_each(store, monkeypatch, is_resumed):
    paid = []
    monkeypatch.setattr(paying, "BANK", [lambda to: paid.append(to) or f"receipt {len(paid)}"])
    action = paying.PayAction(to="ann")
    thought = [TextContent(text="I pay.")]
    events = EventLog(store)
    for call_id in ("c1", "c2"):
        about = {"tool_name": "pay", "tool_call_id": call_id, "llm_response_id": "r1"}
        call = MessageToolCall(
            id=call_id, name="pay", arguments='{"to": "ann"}', origin="completion"
        )
        events.append(ActionEvent(thought=thought, action=action, tool_call=call, **about))
    talk = SimpleNamespace(state=SimpleNamespace(events=events))
    results = []
    pay = store.with_effects(paying.Pay(), paying.PayObservation)
    for call in [*events]:
        results.append(pay(action, talk))
        if is_resumed:
            about = {"tool_name": "pay", "tool_call_id": call.tool_call_id, "action_id": call.id}
            events.append(ObservationEvent(observation=results[-1], **about))
            pay = store.with_effects(paying.Pay(), paying.PayObservation)
    assert [result.text for result in results] == ["receipt 1", "receipt 2"]
    log = [*store.history.events()]
    begun = [log[event.cause].call_id for event in log if isinstance(event, Annotation)]
    assert [*dict.fromkeys(begun)] == ["c1", "c2"]


@pytest.mark.parametrize("talk", [None, SimpleNamespace(state=SimpleNamespace(events=[]))])
def test_an_action_without_a_call_is_refused(store, talk):
    """A program calls the tool itself, for example by ``conversation.execute_tool``."""
    pay = store.with_effects(paying.Pay(), paying.PayObservation)
    with pytest.raises(InvalidArgument, match="no call has the action PayAction"):
        pay(paying.PayAction(to="ann"), talk)


def said(text, parent=None, source="user"):
    message = Message(
        role="user" if source == "user" else "assistant", content=[TextContent(text=text)]
    )
    return MessageEvent(source=source, llm_message=message, parent_id=parent)


def worked(what, *content, is_error=False):
    """Return a call and its result, which is ``what`` and more content."""
    about = {"tool_name": "work", "tool_call_id": uuid4().hex}
    call = MessageToolCall(
        id=about["tool_call_id"],
        name="work",
        arguments=json.dumps({"what": what}),
        origin="completion",
    )
    details = {"action": WorkAction(what=what), "tool_call": call, "llm_response_id": uuid4().hex}
    action = ActionEvent(thought=[TextContent(text="I work.")], **details, **about)
    observation = WorkObservation(content=[TextContent(text=what), *content], is_error=is_error)
    return action, ObservationEvent(observation=observation, action_id=action.id, **about)


def any_events(choice, parent):
    """Yield events that an agent makes after the event ``parent``."""
    text = choice.choice(TEXTS)
    number = uuid4().hex
    about = {"tool_name": "work", "tool_call_id": number}
    match choice.randrange(7):
        case 0:
            yield PauseEvent(parent_id=parent)
        case 1:
            yield ConversationStateUpdateEvent(
                key="execution_status", value="idle", parent_id=parent
            )
        case 2:
            yield AgentErrorEvent(error=text, parent_id=parent, **about)
        case 3:
            yield CondensationRequest(parent_id=parent)
        case 4 | 5:
            call = MessageToolCall(
                id=number, name="work", arguments=json.dumps({"what": text}), origin="completion"
            )
            action = ActionEvent(
                thought=[TextContent(text=text)],
                action=WorkAction(what=text),
                tool_call=call,
                llm_response_id=uuid4().hex,
                parent_id=parent,
                **about,
            )
            yield action
            observation = WorkObservation.from_text(text, is_error=choice.random() < 0.2)
            yield ObservationEvent(
                observation=observation, action_id=action.id, parent_id=action.id, **about
            )
        case _:
            yield said(text, parent)


def texts(store):
    return {path: store.read(path) for path in store.list("events") if path.endswith(".json")}


def path_to(log, event):
    return [each.id for each in log.path_to_root(event)]


def shown(history):
    """Return the events of a View, by the SDK's ids."""
    return [event.origin.id for event in history.view()]


def test_a_random_tree_equals_the_sdks(url, tmp_path):
    choice = random.Random(1)
    store = FoldlogFileStore(url, "c1")
    theirs = LocalFileStore(str(tmp_path / "theirs"))
    log = EventLog(store)
    other = EventLog(theirs)
    head = None
    heads = [None]
    for _ in range(60):
        if choice.random() < 0.2:
            head = choice.choice(heads)
            state = {"leaf_event_id": head, "head_is_empty": head is None, "n": choice.random()}
            store.write("base_state.json", json.dumps(state))
        for event in any_events(choice, head if head is not None or not len(log) else "__root__"):
            log.append(event)
            other.append(event)
            if not isinstance(event, ConversationStateUpdateEvent):
                head = event.id
                heads.append(head)
        kinds = (MessageEvent, ActionEvent, ObservationEvent, AgentErrorEvent)
        branch = [each.id for each in log.path_to_root(head) if isinstance(each, kinds)]
        assert shown(store.history) == branch, "the View is the branch that the model is shown"
    assert texts(store) == texts(theirs)
    if url != "memory:":
        store.close()
        store = FoldlogFileStore(url, "c1")
        assert texts(store) == texts(theirs)
        again = EventLog(store)
        assert list(again) == list(other)
        assert path_to(again, head) == path_to(other, head)
    again = EventLog(store)
    again.append(said("after", head))
    assert list(EventLog(store))[-1].parent_id == head
    assert_sound(store.histories.sync.store, "openhands/c1")
    store.close()


def test_other_files_equal_the_sdks(store):
    choice = random.Random(5)
    theirs = InMemoryFileStore()
    paths = ["base_state.json", "a/b.txt", "a/c.txt", "a/d/e.json", "f"]
    for _ in range(150):
        path = choice.choice(paths)
        what = choice.random()
        if what < 0.5:
            text = choice.choice(TEXTS)
            store.write(path, text.encode() if choice.random() < 0.3 else text)
            theirs.write(path, text)
        elif what < 0.7:
            store.delete(path)
            theirs.delete(path)
        assert store.exists(path) == theirs.exists(path)
        if theirs.exists(path):
            compact = path == "base_state.json" and theirs.read(path).startswith("{")
            assert store.read(path) == (
                theirs.read(path).replace(" ", "") if compact else theirs.read(path)
            )
        else:
            with pytest.raises(FileNotFoundError):
                store.read(path)
        for folder in ("a", "a/d"):
            assert sorted(store.list(folder)) == sorted(theirs.list(folder))
    with pytest.raises(UnicodeDecodeError):
        store.write("f", b"\xff")
    with pytest.raises(ValueError, match="leads out of"):
        store.read("../other/base_state.json")


def test_a_growing_state_is_stored_as_differences(store):
    state = {"agent": {"prompt": "x" * 20_000}, "usages": [], "leaf_event_id": None}
    for number in range(80):
        state["usages"].append({"model": "m", "prompt_tokens": number, "cost": 1e-05 * number})
        store.write("base_state.json", json.dumps(state))
        assert json.loads(store.read("base_state.json")) == state
    changes = [event for event in store.history.events() if isinstance(event, DocumentChanges)]
    assert len(changes) == 80
    assert sum("value" in event.changed["base_state.json"] for event in changes) <= 3
    store.write("base_state.json", "not JSON")
    assert store.read("base_state.json") == "not JSON"


def test_each_calls_usage_is_recorded_once(histories):
    def state(*calls):
        tokens = [
            {"model": "m", "prompt_tokens": n, "completion_tokens": 2, "cache_read_tokens": 1}
            for n in calls
        ]
        costs = [{"model": "m", "cost": n / 4, "timestamp": 1.0} for n in calls]
        metrics = {"model_name": "m", "token_usages": tokens, "costs": costs}
        return json.dumps({"stats": {"usage_to_metrics": {"agent": metrics}}})

    for states in ([state(), state(4), state(4)], [state(4), state(4, 8, 12), "[]"]):
        store = FoldlogFileStore(histories, "c")  # a process that resumes counts no call again
        for text in states:
            store.write("base_state.json", text)
    assert not store.history.view()
    (figures,) = histories["openhands/c"].stats().models.values()
    assert (figures.calls, figures.cost) == (3, 6.0)
    assert (figures.prompt_tokens, figures.completion_tokens, figures.cached_tokens) == (24, 6, 3)


def test_an_event_is_not_overwritten_or_deleted(store):
    log = EventLog(store)
    event = said("one")
    log.append(event)
    path = store.list("events")[0]
    for text in (store.read(path), "{}", "[]", ""):
        with pytest.raises(InvalidEvent, match="nothing was written"):
            store.write(path, text)
    with pytest.raises(InvalidEvent, match=r"nothing was deleted.*histories\.erase"):
        store.delete("events")
    other = said("two", "other")
    with pytest.raises(InvalidEvent, match="has no event 'other' to continue from"):
        store.write(f"events/event-00001-{other.id}.json", other.model_dump_json(exclude_none=True))
    store.write("base_state.json", '{"leaf_event_id": "other"}')
    assert (store.read("base_state.json"), shown(store.history)) == (
        '{"leaf_event_id":"other"}',
        [event.id],
    )
    assert list(EventLog(store)) == [event]


def test_a_failed_listing_is_no_empty_log(histories, monkeypatch):
    EventLog(FoldlogFileStore(histories, "c1")).append(said("one"))
    store = FoldlogFileStore(histories, "c1")
    with monkeypatch.context() as patched:
        patched.setattr(store, "list", lambda path: (_ for _ in ()).throw(OSError("away")))
        log = EventLog(store)
        assert len(log) == 0, "the SDK takes an error for an empty folder"
        with pytest.raises(
            InvalidEvent, match="already has 1 event, and an event cannot be replaced"
        ):
            log.append(said("two"))
    log.append(said("three", log[0].id if len(log) else None))
    assert [event.llm_message.content[0].text for event in EventLog(store)] == ["one", "three"]


def test_a_lock_is_held_by_one_thread(store):
    held = threading.Event()
    released = threading.Event()

    def hold():
        with store.lock("events/.eventlog.lock"):
            held.set()
            released.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    with (
        pytest.raises(TimeoutError, match="was locked for"),
        store.lock("events/.eventlog.lock", timeout=0.01),
    ):
        pass
    released.set()
    thread.join()
    with store.lock("events/.eventlog.lock", timeout=30):
        pass


ID = UUID("6b0d6b5f-1f0e-4d55-9d0e-3a3f0a0f1c11")


@pytest.mark.anyio
class TestKeeps(Runs):
    runtime = "openhands"
    killed_parts = 0  # messages show no call without a result
    # the SDK's tools are classes of their own
    test_the_recall_tool_finds_forgotten_text = None

    def opened(self, url, **options):
        return FoldlogFileStore(url, ID, **options)

    async def add(self, store, *names):
        """The SDK's calls block their thread. It writes one event at a time."""
        await store.histories.pool.run(partial(self._add, store, " ".join(names)), finish=True)

    def _add(self, store, text):
        head = None
        if store.exists("base_state.json"):
            head = json.loads(store.read("base_state.json"))["leaf_event_id"]
        event = said(text, head)
        if not hasattr(store, "log"):
            store.log = EventLog(store)
        store.log.append(event)
        store.write("base_state.json", json.dumps({"leaf_event_id": event.id}))

    async def names(self, store):
        log = EventLog(store)
        view = shown(store.history)
        assert view == path_to(log, view[-1]), "the View is a branch of the SDK's tree"
        return [name for event in log for name in event.llm_message.content[0].text.split()]

    def model(self, script):
        return ChatServer(lambda messages, number: reply(script(number)))

    async def run(self, store, model, prompt, *tools):
        await store.histories.pool.run(partial(self._run, store, model, prompt, tools), finish=True)

    def _run(self, store, model, prompt, tools):
        TOOLS.update({tool.__name__: tool for tool in tools})
        with TemporaryDirectory() as workspace:
            talk = conversation(store, ID, served(model.url), workspace)
            talk.send_message(prompt)
            talk.run()
            assert talk.state.execution_status.value == "finished"
            assert shown(store.history) == [event.id for event in talk.state.view.events]
            talk.close()
        model.close()
        assert model.problems == []

    async def run_paying(self, url, pay, call_id):
        """The SDK finds the classes of a tool by their names in a module."""
        with TemporaryDirectory() as workspace, FoldlogFileStore(url, ID) as store:
            paying.STORE[:] = [store]
            paying.BANK[:] = [pay.__wrapped__]
            call = MessageToolCall(
                id=call_id, name="pay", arguments='{"to": "ann"}', origin="completion"
            )
            replies = [
                Message(role="assistant", content=[], tool_calls=[call]),
                Message(role="assistant", content=[TextContent(text="done")]),
            ]
            talk = conversation(store, ID, TestLLM.from_messages(replies), workspace, tool="pay")
            talk.send_message("pay ann")
            talk.run()
            return [event.model_dump_json() for event in talk.state.events]

    def parts(self, prompt):
        return parts_of(prompt)

    async def stored_parts(self, store):
        return parts_of(store.history.view().to_messages())

    async def test_the_example_runs(self, example, capsys):
        for count in (3, 5):
            example["main"]("hello", scripted("hi there"))
            assert (
                capsys.readouterr().out.splitlines()[-1] == f"{count} events are shown to the model"
            )


def test_the_sdks_condensation_is_a_condensation(store):
    log = EventLog(store)
    events = [said(str(number)) for number in range(4)]
    for before, event in zip([None, *events], events, strict=False):
        log.append(event.model_copy(update={"parent_id": before and before.id}))
    forgets = Condensation(
        forgotten_event_ids={events[1].id, events[2].id},
        summary="before",
        summary_offset=1,
        llm_response_id="r",
        parent_id=events[3].id,
    )
    log.append(forgets)
    view = store.history.view()
    assert [getattr(event, "content", None) for event in view] == ["0", "before", "3"]
    store.write("base_state.json", json.dumps({"leaf_event_id": events[3].id}))
    assert shown(store.history) == [event.id for event in events], (
        "the SDK went back to before its condensation"
    )
    assert isinstance(store.history.tail(2)[0], Retraction)
    assert list(EventLog(store))[-1] == forgets


def test_a_conversation_is_copied_and_copied_on(histories, tmp_path):
    choice = random.Random(7)
    theirs = LocalFileStore(str(tmp_path / "theirs"))
    log = EventLog(theirs)
    heads = [None]
    store = FoldlogFileStore(histories, "c1")
    for number in range(60):
        if number == 40:
            assert store.copy_from(theirs) == len(log)
        head = heads[-1] if choice.random() < 0.8 else choice.choice(heads)
        for event in any_events(choice, head if head is not None or not len(log) else "__root__"):
            log.append(event)
            if not isinstance(event, ConversationStateUpdateEvent):
                heads.append(event.id)
    theirs.write("base_state.json", json.dumps({"leaf_event_id": heads[-1], "tags": {"a": "b"}}))
    before = len(store.list("events"))
    assert store.copy_from(theirs) == len(log) - before
    assert store.copy_from(theirs) == 0
    assert texts(store) == texts(theirs)
    assert json.loads(store.read("base_state.json")) == json.loads(theirs.read("base_state.json"))
    kinds = (MessageEvent, ActionEvent, ObservationEvent, AgentErrorEvent)
    assert shown(store.history) == [
        each.id for each in log.path_to_root(heads[-1]) if isinstance(each, kinds)
    ]
    theirs.delete(sorted(texts(theirs))[3])
    with pytest.raises(InvalidEvent, match="nothing was copied"):
        FoldlogFileStore(histories, "c2").copy_from(theirs)
    with pytest.raises(InvalidEvent, match="nothing was copied"):
        store.copy_from(InMemoryFileStore())
