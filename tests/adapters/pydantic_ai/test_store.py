"""``FoldlogConversationStore``: equal to the SDK's own store in memory, exact, and safe beside
others.
"""

import asyncio
import contextlib
import json
import random
from dataclasses import replace
from functools import partial

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryContent,
    CompactionPart,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RunUsage

from foldlog.adapters import pydantic_ai
from foldlog.adapters.pydantic_ai import FoldlogConversationStore, FoldlogSteps
from foldlog.eventstore import CondensationAction, Retraction
from tests.adapters.contract import FILE, IMAGE, Answers, Condenses, Lists, check_import, holding
from tests.adapters.pydantic_ai.scripted import (
    any_message,
    loaded,
    messages_of,
    parts_of,
    reply,
    said,
    scripted,
)
from tests.between import before_next_call
from tests.sound import assert_sound

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(histories):
    return FoldlogConversationStore(histories)


def exact(value):
    """Return a value to compare. The values of two answers differ if a field or a type differs, and
    not if the SDK computes a field again.
    """
    if isinstance(value, (list, tuple)):
        return [exact(item) for item in value]
    if isinstance(value, (ModelRequest, ModelResponse)):
        return type(value).__name__ + repr(
            ModelMessagesTypeAdapter.dump_python([value], warnings=False)
        )
    if isinstance(value, ConversationEntry):
        return value.id, value.parent_id, value.kind, exact(value.message)
    return repr(value)


def both(method):
    """Return a method of ``Twin`` that calls the method with this name of both stores."""

    async def call(self, *args, **kwargs):
        return await self.both(method, *args, **kwargs)

    return call


class Twin(ConversationStore):
    """Does everything in two stores, and compares their answers."""

    read_record = both("read_record")
    read_records = both("read_records")
    read_entry = both("read_entry")
    read_history = both("read_history")
    write_record = both("write_record")
    delete_record = both("delete_record")

    def __init__(self, ours, theirs):
        self.ours = ours
        self.theirs = theirs
        self.compared = 0

    async def both(self, method, *args, **kwargs):
        answers = []
        for store in (self.ours, self.theirs):
            try:
                answers.append(await getattr(store, method)(*args, **kwargs))
            except (ConversationConflict, LookupError) as error:
                answers.append(error)
        ours, theirs = answers
        self.compared += 1
        if isinstance(ours, Exception) or isinstance(theirs, Exception):
            assert type(ours) is type(theirs), (method, ours, theirs)
            raise ours
        assert exact(ours) == exact(theirs), method
        return ours


async def random_operation(store, choice):
    """Do one thing with a store, as an application does."""
    ids = ["a", "b/ü", "c\ud800", ""]
    scopes = [None, "s", "t"]
    name = choice.choice(ids)
    other = choice.choice(ids)
    scope = choice.choice(scopes)
    conversation = await store.load(name, limit=choice.choice([None, None, None, 1, 5]))
    count = 0 if conversation is None else len(conversation.messages)
    entries = await store.load_entries(name) or []
    record = await store.read_record(name)
    tips = [] if record is None else [*record.branches, *[entry.id for entry in entries]]
    match choice.randrange(11):
        case 0 | 1 | 2 | 3:
            conversation = conversation or Conversation(conversation_id=name)
            conversation.messages += [any_message(choice) for _ in range(choice.randrange(4))]
            conversation.usage = RunUsage(
                audio_seconds=0.0, requests=choice.randrange(9), details={"x": 2}
            )
            await store.save(conversation, scope=choice.choice([None, None, scope]))
        case 4 if conversation is not None:  # rewritten from somewhere on
            at = choice.randrange(count + 1)
            conversation.messages = [*conversation.messages[:at], any_message(choice)]
            await store.save(conversation)
        case 5 if record is not None:
            await store.branch(
                name, at=choice.randrange(len(entries) + 1), expected_revision=record.revision
            )
        case 6 if tips:
            await store.branch(
                name, from_entry=choice.choice(tips), expected_revision=record.revision
            )
        case 7:
            await store.fork(
                name, at=choice.choice([None, 0, 1, count]), new_conversation_id=other, scope=scope
            )
        case 8 if tips:
            await store.fork(name, from_entry=choice.choice(tips), new_conversation_id=other)
        case 9:
            await store.delete(name, scope=scope)
        case _:
            await store.list_conversations(scope=scope, limit=choice.choice([None, 0, 1, 2]))


@pytest.mark.parametrize("seed", range(3))
async def test_random_operations_equal_the_sdks_store(store, seed):
    choice = random.Random(seed)
    twin = Twin(store, InMemoryConversationStore())
    for _ in range(60):
        with contextlib.suppress(UserError):
            await random_operation(twin, choice)
    assert twin.compared > 200
    assert_sound(store.histories.sync.store)


async def test_random_messages_survive_a_reopen(file_url):
    choice = random.Random(5)
    messages = [any_message(choice) for _ in range(300)]
    async with FoldlogConversationStore(file_url) as store:
        conversation = Conversation(conversation_id="c", messages=messages)
        await store.save(conversation)
    async with FoldlogConversationStore(file_url) as store:
        assert exact(await messages_of(store)) == exact(messages)
        assert exact((await store.load("c", limit=7)).messages) == exact(messages[-7:])
        assert await messages_of(store) == messages


def prompt(text):
    return ModelRequest(parts=[UserPromptPart(str(text))])


async def talk(store, conversation_id, *texts):
    conversation = await store.load(conversation_id) or Conversation(
        conversation_id=conversation_id
    )
    for text in texts:
        conversation.messages += [prompt(text), said(f"re {text}")]
    await store.save(conversation)
    return conversation


def texts_of(view):
    return [event.content for event in view]


async def test_a_branch_is_a_retraction(store, histories):
    await talk(store, "c", "one", "two")
    record = await store.read_record("c")
    await store.branch("c", at=2, expected_revision=record.revision)
    history = histories[store.conversation("c")]
    assert texts_of(history.view()) == ["one", "re one"]
    await talk(store, "c", "three")
    assert texts_of(history.view()) == ["one", "re one", "three", "re three"]
    assert history.view().to_messages()[-1] == {"role": "assistant", "content": "re three"}
    record = await store.read_record("c")
    await store.branch("c", from_entry=record.branches[0], expected_revision=record.revision)
    assert texts_of(history.view()) == ["one", "re one", "two", "re two"]


async def test_a_fork_shares_the_events_of_its_parent(store, histories):
    await talk(store, "c", "one", "two")
    await store.fork("c", at=2, new_conversation_id="d")
    row = histories.store.conversation(store.conversation("d"))
    assert (row.parent, row.parent_version) == (store.conversation("c"), 2)
    await talk(store, "d", "other")
    assert texts_of(histories[store.conversation("d")].view()) == [
        "one",
        "re one",
        "other",
        "re other",
    ]
    assert len(await messages_of(store)) == 4


async def test_a_fork_outlives_its_deleted_parent(store, histories):
    conversation = await talk(store, "c", "one", "two")
    calls = [("measure", f"c{number}", {}) for number in range(2)]
    conversation.messages[1:2] = [reply(calls)]
    await store.save(conversation)
    await store.fork("c", at=2, new_conversation_id="d")
    shared = (await store.load("d")).messages
    assert exact(shared) == exact(conversation.messages[:2])
    await store.delete("c")
    assert histories.store.conversation(store.conversation("c")).erased_at is not None
    assert exact((await store.load("d")).messages) == exact(shared)
    assert_sound(histories.store)
    await talk(store, "c", "again")
    assert len(await messages_of(store)) == 2
    assert {record.conversation_id for record in await store.list_conversations()} == {"c", "d"}


async def test_deleting_an_unknown_conversation_is_a_conflict(store):
    with pytest.raises(ConversationConflict):
        await store.delete_record("never", expected_revision="any")


async def test_a_conversation_saved_meanwhile_is_not_deleted(store, histories, monkeypatch):
    await talk(store, "c", "one")
    record = await store.read_record("c")
    # in the thread that deletes: another task saves first
    save = lambda: asyncio.run(talk(store, "c", "two"))  # noqa: E731
    before_next_call(monkeypatch, histories, "erase", save)
    with pytest.raises(ConversationConflict):
        await store.delete_record("c", expected_revision=record.revision)
    assert len(await messages_of(store)) == 4


async def test_a_save_after_a_simultaneous_one_conflicts(store, monkeypatch):
    await talk(store, "c", "one")
    conversation = await store.load("c")
    conversation.messages = [*conversation.messages, prompt("three")]

    # in the thread that saves: another task saves first
    save = lambda: asyncio.run(talk(store, "c", "two"))  # noqa: E731
    before_next_call(monkeypatch, pydantic_ai, "Moves", save)
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    assert len(await messages_of(store)) == 4


async def goes_on_from(store, conversation_id, other_id):
    """Save a message that follows the newest message of another conversation."""
    record = await store.read_record(conversation_id)
    parent_id = (await store.read_record(other_id)).head_id
    entry = ConversationEntry(id="new", parent_id=parent_id, message=prompt("next"))
    new = replace(record, head_id="new", revision="new")
    await store.write_record(new, new_entries=[entry], expected_revision=record.revision)


async def test_copied_messages_omit_text_redacted_meanwhile(store, histories, monkeypatch):
    await talk(store, "c", "one", "marigold")
    await store.fork("c", at=2, new_conversation_id="d")
    original, fork = (histories[store.conversation(name)] for name in "cd")
    redact = partial(original.redact, holding(original, "marigold"), reason="asked to")
    before_next_call(monkeypatch, pydantic_ai.Moves, "add", redact)
    await goes_on_from(store, "d", "c")
    assert "marigold" not in repr(list(fork.events()))
    assert texts_of(fork.view()) == ["one", "re one", "[redacted]", "[redacted]", "next"]


async def test_a_save_after_erased_messages_conflicts(store, histories, monkeypatch):
    await talk(store, "c", "one", "two")
    await store.fork("c", at=2, new_conversation_id="d")
    fork = histories[store.conversation("d")]
    version = fork.version()
    erase = partial(histories.erase, store.conversation("c"), reason="asked to", detach_forks=True)
    before_next_call(monkeypatch, store._entries, "missing", erase)
    with pytest.raises(ConversationConflict):
        await goes_on_from(store, "d", "c")
    assert fork.version() == version
    assert texts_of(fork.view()) == ["one", "re one"]


async def test_text_redacted_in_a_parent_stays_redacted(store, histories, monkeypatch):
    await talk(store, "c", "marigold")
    await store.fork("c", new_conversation_id="d")
    original, fork = (histories[store.conversation(name)] for name in "cd")
    version = fork.version()
    conversation = await store.load("d")
    conversation.messages = [prompt("first"), *conversation.messages]
    redact = partial(original.redact, holding(original, "marigold"), reason="asked to")
    before_next_call(monkeypatch, pydantic_ai, "Moves", redact)
    with pytest.raises(ConversationConflict):
        await store.save(conversation)
    assert fork.version() == version


async def test_a_fork_without_a_record_is_absent(store, histories):
    await talk(store, "c", "one", "two")
    await talk(store, "c", "three")
    histories[store.conversation("c")].fork(id=store.conversation("d"))
    assert await store.load("d") is None, "it has the record of its parent"
    assert [record.conversation_id for record in await store.list_conversations()] == ["c"]
    await talk(store, "d", "new")
    assert texts_of(histories[store.conversation("d")].view()) == ["new", "re new"]
    histories[store.conversation("c")].fork(at=3, id=store.conversation("e"))
    await store.fork("c", at=2, new_conversation_id="e")
    assert texts_of(histories[store.conversation("e")].view()) == ["one", "re one"]


async def test_a_copy_has_all_branches_and_forks(store):
    theirs = InMemoryConversationStore()
    choice = random.Random(9)
    for _ in range(40):
        with contextlib.suppress(UserError):
            await random_operation(theirs, choice)
    records = await theirs.list_conversations()
    assert await store.copy_from(theirs) == len(records) > 2
    assert await store.copy_from(theirs) == 0
    assert repr(await store.list_conversations()) == repr(records)
    for record in records:
        for tip in [record.head_id, *record.branches]:
            assert exact(await store.read_history(tip)) == exact(await theirs.read_history(tip))


class TestKeeps(Answers, Lists, Condenses):
    runtime = "pydantic-ai"
    prints = "4 messages, 4 events are shown to the model"

    def opened(self, url, **options):
        return FoldlogConversationStore(url, **options)

    async def add(self, store, *names):
        while True:
            conversation = await loaded(store)
            conversation.messages += [prompt(name) for name in names]
            try:
                await store.save(conversation)
            except ConversationConflict:
                continue
            return

    async def names(self, store):
        assert (await store.read_record("c")).branches == []
        return [message.parts[0].content for message in await messages_of(store)]

    async def listed(self, store):
        return await store.list_conversations()

    async def add_to(self, store, name):
        conversation = await store.load(name) or Conversation(conversation_id=name)
        conversation.messages.append(said("x"))
        await store.save(conversation)

    def model(self, script):
        return scripted(lambda messages, number: reply(script(number)))

    refuses = ConversationConflict

    async def hold(self, store):
        return {"conversation": await store.load("c")}

    async def run(self, store, model, prompt, *tools, conversation=None):
        current = conversation or await loaded(store)
        pending = current.messages and getattr(current.messages[-1], "tool_calls", ())
        agent = Agent(
            model, tools=tools, capabilities=[FoldlogSteps(store, condense=self.condense)]
        )
        await agent.run(None if pending else prompt, conversation=current)

    def texts(self, prompt):
        parts = [part for message in prompt for part in message.parts]
        return [
            part.args_as_dict() if part.part_kind == "tool-call" else part.content for part in parts
        ]

    def parts(self, prompt):
        return parts_of(prompt)

    async def stored_parts(self, store):
        return parts_of(await messages_of(store))


async def test_an_applications_compaction_is_a_condensation(store, histories):
    first = [
        ModelRequest.user_text_prompt("one"),
        said("two"),
        ModelRequest.user_text_prompt("three"),
    ]
    conversation = Conversation(conversation_id="c", messages=first)
    await store.save(conversation)
    summary = ModelRequest(parts=[CompactionPart("in short")])
    conversation.messages = [summary, first[-1]]
    await store.save(conversation)
    assert exact(await messages_of(store)) == exact(conversation.messages)
    events = list(histories["pydantic-ai/c"].events())
    (condensation,) = [event for event in events if isinstance(event, CondensationAction)]
    assert condensation.forgotten_event_ids == [0, 1, 2]
    assert not [event for event in events if isinstance(event, Retraction)]
    history = histories["pydantic-ai/c"]
    entry = next(event.id for event in events if event.id > condensation.id)
    history.redact(entry, reason="asked to")
    assert [
        len(each.message.parts)
        for each in await store.read_history((await store.read_record("c")).head_id)
    ] == [
        1,
        1,
    ]


async def test_a_save_does_not_reset_attributes(histories, store):
    conversation = Conversation(conversation_id="c", messages=[said("hi")])
    await store.save(conversation)
    histories[store.conversation("c")].set_attributes(title="Refunds")
    conversation.messages.append(reply("hello"))
    await store.save(conversation)
    assert histories[store.conversation("c")].attributes()["title"] == "Refunds"


async def test_a_record_changed_elsewhere_is_read_again(histories, store):
    other = FoldlogConversationStore(histories)
    conversation = Conversation(conversation_id="c", messages=[said("hi")])
    await store.save(conversation)
    await other.save(await other.load("c"))
    assert await store.read_record("c") == await other.read_record("c")
    histories.erase(store.conversation("c"), reason="test")
    assert await store.read_record("c") is None
    await other.save(Conversation(conversation_id="c", messages=[said("again")]))
    assert [message.parts[0].content for message in await messages_of(store)] == ["again"]


def shown(content):
    return [
        (each.media_type, each.data) if isinstance(each, BinaryContent) else each
        for each in content
    ]


SHOWN = ["see", ("image/png", IMAGE), ("application/pdf", FILE)]


async def test_exports_are_readable_and_views_show_images(histories):
    image = BinaryContent(data=IMAGE, media_type="image/png")
    calls = [ToolCallPart("look", {"at": 1}, name) for name in ("c1", "c2")]
    results = [
        ToolReturnPart("look", ["see", image, {"a": 1}], "c1"),
        ToolReturnPart("look", image, "c2"),
    ]
    messages = [
        ModelRequest([UserPromptPart(["see", image])]),
        ModelResponse(calls),
        ModelRequest(results),
    ]
    check_import(histories, "pydantic-ai", ModelMessagesTypeAdapter.dump_json(messages).decode(), 3)
    await FoldlogConversationStore(histories).save(
        Conversation(conversation_id="c", messages=messages)
    )
    saved = json.dumps([*histories["pydantic-ai/c"].export()])
    assert shown(ModelMessagesTypeAdapter.validate_json(saved)[0].parts[0].content) == SHOWN[:2]
    assert shown(ModelMessagesTypeAdapter.validate_json(saved)[2].parts[0].content) == [
        *SHOWN[:2],
        {"a": 1},
    ]
