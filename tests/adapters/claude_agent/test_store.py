"""``FoldlogSessionStore``: what the SDK's contract asks, and what a session does to a store."""

import asyncio
import itertools
import json
import os
import random
import uuid
from dataclasses import replace
from functools import partial
from unittest.mock import ANY
from urllib.parse import urlsplit

import pytest
from claude_agent_sdk import (
    ClaudeSDKClient,
    InMemorySessionStore,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
    create_sdk_mcp_server,
    get_session_messages_from_store,
    list_sessions,
    list_sessions_from_store,
    project_key_for_directory,
    query,
    tool,
)
from claude_agent_sdk.testing import run_session_store_conformance

import foldlog
from foldlog.adapters import claude_agent
from foldlog.adapters._shared import Approval
from foldlog.adapters.claude_agent import FoldlogSessionStore
from foldlog.eventstore import (
    Annotation,
    ConversationErased,
    InvalidArgument,
    StoreUnavailable,
)
from tests.adapters.claude_agent.agent import options
from tests.adapters.claude_agent.anthropic_server import AnthropicServer, blocks_of
from tests.adapters.contract import (
    VALUES,
    Lists,
    Pays,
    approvals_of,
    asked,
    decided,
    history_of,
    redacted_one_by_one,
)
from tests.adapters.model_server import Reply
from tests.between import before_next_call, fail_next_call
from tests.sound import assert_sound

KEY = {"project_key": "-work", "session_id": "s"}
pytestmark = pytest.mark.anyio


@pytest.fixture
def store(histories):
    return FoldlogSessionStore(histories)


def line(number, **fields):
    parent = None if number == 0 else f"u{number - 1}"
    message = {"role": "user", "content": f"m{number}"}
    return {
        "type": "user",
        "uuid": f"u{number}",
        "parentUuid": parent,
        "sessionId": "s",
        "message": message,
        **fields,
    }


async def test_the_conformance_suite_of_the_sdk_passes(url, tmp_path, request):
    stores = []

    def make():
        another = url
        if url.startswith("sqlite"):
            another = f"sqlite:///{tmp_path / str(len(stores))}.db"
        elif url.startswith("postgres"):
            another = request.getfixturevalue("postgres_url")()
        stores.append(FoldlogSessionStore(another))
        return stores[-1]

    await run_session_store_conformance(make)
    for store in stores:
        await store.close()
    assert len(stores) >= 14


async def test_random_entries_survive_a_reopen(file_url):
    choice = random.Random(1)
    entries = []
    names = [
        "message",
        "content",
        "n",
        "toolUseResult",
        "timestamp",
        "isSidechain",
        "a\x00",
        "\ud800",
    ]
    for number in range(200):
        other = {"type": choice.choice(["x", "system", "summary", "user"])}
        entry = choice.choice([line(number), other])
        for _ in range(choice.randrange(4)):
            entry[choice.choice(names)] = choice.choice([*VALUES, 1e308, {"": ""}])
        entries.append(entry)
    async with FoldlogSessionStore(file_url) as store:
        appended = 0
        while appended < len(entries):
            some = choice.randrange(1, 9)
            await store.append(KEY, entries[appended : appended + some])
            appended += some
    async with FoldlogSessionStore(file_url) as store:
        assert repr(await store.load(KEY)) == repr(entries)


@pytest.mark.parametrize(
    "name", ["a/b", "%2F", "..", "@é", "\0", "\ud800", "x" * 999], ids=lambda n: ascii(n[:5])
)
async def test_any_text_may_be_a_name(store, name):
    key = {"project_key": f"p{name}", "session_id": f"s{name}"}
    agent = {**key, "subpath": f"agent{name}"}
    for each in (key, agent):
        await store.append(each, [line(1)])
        assert await store.load(each) == [line(1)]
    for listing in (store.list_sessions, store.list_session_summaries):
        listed = await listing(key["project_key"])
        assert [each["session_id"] for each in listed] == [key["session_id"]]
    assert await store.list_subkeys(key) == [agent["subpath"]]
    await store.delete(key)
    for each in (key, agent):
        assert await store.load(each) is None
    assert await store.list_sessions(key["project_key"]) == []


async def test_a_history_can_be_read_during_a_session(store, histories):
    await store.append(KEY, [line(0), line(1)])
    history = histories[store.conversation({**KEY, "subpath": ""})]
    assert [event.content for event in history.view()] == ["m0", "m1"]
    history.append(
        foldlog.CondensationAction(forgotten_event_ids=[0], summary="before", summary_offset=0)
    )
    await store.append(KEY, [line(2)])
    assert [event.content for event in history.view()] == ["before", "m1", "m2"]
    assert await store.load(KEY) == [line(0), line(1), line(2)], (
        "the session resumes from its own entry"
    )
    assert history.why(0).by.id == 2


async def test_a_deleted_session_begins_again(histories):
    store = FoldlogSessionStore(histories)
    other = FoldlogSessionStore(histories)
    await store.append(KEY, [line(0), line(1)])
    await other.append(KEY, [line(2)])
    fork = histories[store.conversation(KEY)].fork(id="mine")
    await store.delete(KEY)
    assert [event.content for event in fork.view()] == ["m0", "m1", "m2"], (
        "it has a copy of what it shared"
    )
    assert await store.load(KEY) is None
    with pytest.raises(ConversationErased):
        await other.append(KEY, [line(3)])  # what it writes belongs to the session that was deleted
    for number in (0, 4):
        await store.append(KEY, [line(number)])
    for each in (store, FoldlogSessionStore(histories)):
        assert await each.load(KEY) == [line(0), line(4)]
    assert [row["session_id"] for row in await store.list_sessions("-work")] == ["s"]
    assert len(await store.list_session_summaries("-work")) == 1
    assert_sound(histories.store)


async def test_summaries_equal_the_sdks_and_are_incremental(histories, monkeypatch):
    choice = random.Random(3)
    theirs = InMemorySessionStore()
    stores = [FoldlogSessionStore(histories), FoldlogSessionStore(histories)]
    numbers = itertools.count()

    async def summaries(store):
        listed = await store.list_session_summaries("-work")
        return {summary["session_id"]: summary["data"] for summary in listed}

    for turn in range(120):
        key = {**KEY, "session_id": choice.choice("abc")}
        store = choice.choice(stores)
        entries = []
        for number in itertools.islice(numbers, choice.randrange(1, 9)):
            about = {"customTitle": f"t{number}"} if choice.random() < 0.1 else {}
            time = f"2026-01-01T00:00:{number % 60:02}.000Z"
            entries.append(line(number, timestamp=time, cwd="/w", **about))
        for each in (store, theirs):
            await each.append(key, entries)
        if turn % 10 == 0:
            assert await summaries(store) == await summaries(theirs)
    read = []
    before = foldlog.History.events

    def events(self, *arguments, **options):
        for event in before(self, *arguments, **options):
            read.append(event.id)
            yield event

    monkeypatch.setattr(foldlog.History, "events", events)
    fresh = FoldlogSessionStore(histories)
    assert await summaries(fresh) == await summaries(theirs)
    assert len(read) <= 9 * 8, "not the 500 entries"
    read.clear()
    await summaries(fresh)
    assert read == []


def write_lines(path, entries):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))


async def test_a_folder_of_transcripts_is_imported(histories, tmp_path, monkeypatch):
    store = FoldlogSessionStore(histories)
    projects = tmp_path / "projects"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    names = [str(uuid.UUID(int=number)) for number in range(1, 5)]
    about = {"timestamp": "2026-01-01T00:00:00.000Z", "gitBranch": "main"}
    folders = dict(zip(names, ["-work"] * 3 + ["-other"], strict=True))
    wrote = {}
    for name, folder in folders.items():
        cwd = folder.replace("-", "/")
        wrote[name] = [
            {"type": "summary", "summary": f"about {name}", "leafUuid": "x"},
            *(line(n, sessionId=name, cwd=cwd, **about) for n in range(5)),
        ]
        write_lines(projects / folder / f"{name}.jsonl", wrote[name])
    write_lines(projects / "-work" / "agent-1.jsonl", [line(0)])
    agent = projects / "-work" / names[0] / "subagents" / "flows" / "agent-7.jsonl"
    write_lines(agent, [line(0, isSidechain=True)])
    agent.with_name("agent-7.meta.json").write_text('{"agentType": "x"}')

    imported = await store.import_folder(projects)
    assert imported == (4, 4 * 6 + 2, ())
    for name, folder in folders.items():
        assert await store.load({"project_key": folder, "session_id": name}) == wrote[name]
    key = {"project_key": "-work", "session_id": names[0]}
    assert await store.list_subkeys(key) == ["subagents/flows/agent-7"]
    loaded = await store.load({**key, "subpath": "subagents/flows/agent-7"})
    assert loaded == [line(0, isSidechain=True), {"agentType": "x", "type": "agent_metadata"}]
    of_a_file = {"last_modified": ANY, "file_size": None, "created_at": ANY}
    for folder, name in (("/work", names[0]), ("/other", names[3])):
        there = list_sessions(folder, include_worktrees=False)
        assert name in {info.session_id for info in there}
        here = {info.session_id: info for info in await list_sessions_from_store(store, folder)}
        assert here == {info.session_id: replace(info, **of_a_file) for info in there}

    assert await store.import_folder(projects / "-work") == (3, 0, ())
    with (projects / "-work" / f"{names[0]}.jsonl").open("a") as file:
        file.write(json.dumps(line(5)) + '\n{"type": "us')
    imported = await store.import_folder(projects)
    assert imported[:2] == (4, 1)
    assert ":8: not JSON" in imported.findings[0]
    assert await store.load(key) == [*wrote[names[0]], line(5)]
    mirrored = {"project_key": "-work", "session_id": names[1]}
    await store.append(mirrored, [line(9)])
    assert (await store.import_folder(projects)).items == 0, "the store went on"
    with pytest.raises(ValueError, match="is not a folder"):
        await store.import_folder(tmp_path / "none")


async def test_a_session_deleted_during_its_import_stays_deleted(
    store, histories, tmp_path, monkeypatch
):
    name = str(uuid.UUID(int=1))
    key = {**KEY, "session_id": name}
    path = tmp_path / "-work" / f"{name}.jsonl"
    entries = [line(number) for number in range(4)]
    write_lines(path, entries[:2])
    await FoldlogSessionStore(histories).import_folder(tmp_path)
    write_lines(path, entries)
    erase = partial(histories.erase, store.conversation(key), reason="asked to")
    before_next_call(monkeypatch, store, "_append", erase)
    with pytest.raises(ConversationErased):
        await store.import_folder(tmp_path)
    assert await store.load(key) is None
    assert (await store.import_folder(tmp_path)).items == 4
    assert await store.load(key) == entries


class TestKeeps(Lists, Pays):
    runtime = "claude"

    def opened(self, url, **options):
        return FoldlogSessionStore(url, **options)

    async def add(self, store, *names):
        entries = [{"type": "x", "uuid": name} for name in names]
        # every call sends the first one again
        await store.append(KEY, [{"type": "x", "uuid": "again"}, *entries])

    async def names(self, store):
        return [entry["uuid"] for entry in await store.load(KEY)][1:]

    async def listed(self, store):
        return await store.list_session_summaries("-work")

    async def add_to(self, store, name):
        await store.append({**KEY, "session_id": name}, [line(uuid.uuid4().int)])

    async def run_paying(self, url, pay, call_id):
        sent = []

        @tool("pay", "Pay somebody.", {"to": str})
        @foldlog.effect()
        async def paying(arguments):
            await asyncio.sleep(3)  # the SDK hands lines over some time after they were written
            return {"content": [{"type": "text", "text": pay.__wrapped__(arguments["to"])}]}

        def play(prompt):
            sent.append(prompt["messages"])
            was_called = any(
                call_id in str(block) for each in sent[-1] for block in blocks_of(each)
            )
            if not prompt.get("tools") or was_called:
                return Reply("done")
            return Reply(calls=[("mcp__bank__pay", call_id, {"to": "ann"})])

        server = AnthropicServer(play)
        folder = os.path.dirname(urlsplit(url).path)
        home = f"{folder}/home-{os.getpid()}"
        os.mkdir(home)
        session = "6b0d6b5f-1f0e-4d55-9d0e-3a3f0a0f1c11"
        async with FoldlogSessionStore(url) as store:
            bank = create_sdk_mcp_server("bank", tools=[store.with_effects(paying)])
            started = any(True for _ in store.histories.sync)
            begun = {"resume": session} if started else {"session_id": session}
            more = {"mcp_servers": {"bank": bank}, "hooks": store.effect_hooks(), **begun}
            async for _ in query(
                prompt="pay ann", options=options(store, server.url, home, folder, **more)
            ):
                pass
        server.close()
        return sent[-1]


async def test_effect_belongs_to_the_last_announced_call(store):
    """A call that a person refuses is announced too, and does not begin."""

    @tool("pay", "Pay somebody.", {"to": str})
    @foldlog.effect()
    async def pay(arguments):
        return {"content": []}

    paying = store.with_effects(pay)
    for call_id in ("refused", "approved"):
        announced = {"tool_name": "mcp__bank__pay", "tool_use_id": call_id}
        place = {"cwd": "/work", "session_id": "s", "tool_input": {"to": "ann"}}
        await store._before_tool({**announced, **place}, None, None)
    await paying.handler({"to": "ann"})
    intents = [
        event.data["intent"]["call_id"]
        for event in history_of(store).events()
        if isinstance(event, Annotation) and "intent" in event.data
    ]
    assert intents == ["approved"]


async def test_effect_of_a_tool_with_underscores_and_edited_arguments(store):
    @tool("pay__once", "Pay somebody.", {"to": str})
    @foldlog.effect()
    async def pay(arguments):
        return {"content": [{"type": "text", "text": arguments["to"]}]}

    async def permit(tool, arguments, context):
        return PermissionResultAllow(updated_input={"to": "bob"})

    store.with_effects(replace(pay, name="once"))
    paying = store.with_effects(pay)
    hook_input = {
        "tool_name": "mcp__bank__pay__once",
        "tool_use_id": "c1",
        "cwd": "/work",
        "session_id": "s",
        "tool_input": {"to": "ann"},
    }
    await store._before_tool(hook_input, None, None)
    context = ToolPermissionContext(tool_use_id="c1")
    await store.with_approvals(permit)("mcp__bank__pay__once", {"to": "ann"}, context)
    with pytest.raises(InvalidArgument, match="was not announced with these arguments"):
        await paying.handler({"to": "ann"})
    assert (await paying.handler({"to": "bob"}))["content"][0]["text"] == "bob"
    (intent,) = (event.data["intent"] for event in history_of(store).events())
    assert intent == {"tool": "pay__once", "arguments": {"to": "bob"}, "call_id": "c1"}


async def test_repeated_append_records_its_approvals(store, monkeypatch):
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {}}
    message = {"role": "assistant", "content": [call]}
    entries = [{"type": "mode", "mode": "plan"}, line(0, type="assistant", message=message)]
    await store._record(Approval.asked("c1", "shown", to="ann"))
    await store._record(Approval.decided("c1", True, by="ann"))
    fail_next_call(monkeypatch, claude_agent, "record_approvals")
    with pytest.raises(StoreUnavailable):
        await store.append(KEY, entries)
    await store.append(KEY, entries)  # as the SDK does
    assert await store.load(KEY) == entries
    expected = [{"asked": "ann", "shown": "shown"}, decided(True, by="ann")]
    assert approvals_of(history_of(store)) == {"c1": expected}
    await store.append(KEY, entries[:1])
    assert await store.load(KEY) == [*entries, entries[0]]


@pytest.mark.parametrize("flush", ["eager", "batched"])
async def test_permissions_are_approvals_of_their_call(store, tmp_path, flush):
    def play(prompt):
        if not prompt.get("tools"):
            return Reply("a title")
        if any(block["type"] == "tool_result" for block in blocks_of(prompt["messages"][-1])):
            return Reply("finished")
        return Reply("", [("Bash", f"c{n}", {"command": f"touch {n}"}) for n in (1, 2, 3)])

    async def permit(tool, arguments, context):
        number = arguments["command"][-1]
        if number == "1":
            return PermissionResultDeny(message="not now")
        edited = {"command": "touch 4"} if number == "3" else None
        return PermissionResultAllow(updated_input=edited or arguments)

    server = AnthropicServer(play)
    plain = options(store, server.url, str(tmp_path), str(tmp_path))
    asking = replace(
        plain,
        permission_mode="default",
        session_store_flush=flush,
        can_use_tool=store.with_approvals(permit, by="ann"),
    )
    async with ClaudeSDKClient(asking) as client:
        await client.query("go")
        async for _ in client.receive_response():
            pass
    server.close()
    decisions = [
        decided(False, by="ann", reason="not now"),
        decided(True, by="ann"),
        decided(True, by="ann", reason='edited: {"command": "touch 4"}'),
    ]
    assert approvals_of(history_of(store)) == {
        f"c{n}": [asked("Bash", to="ann", command=f"touch {n}"), decision]
        for n, decision in enumerate(decisions, 1)
    }


async def test_a_session_stays_readable_after_any_redaction(file_url, tmp_path):
    key = {"project_key": project_key_for_directory(str(tmp_path)), "session_id": str(uuid.uuid4())}
    ids = [str(uuid.uuid4()) for _ in range(6)]
    called = [
        {"type": "tool_use", "id": f"c{n}", "name": "Read", "input": {"path": "x"}} for n in (0, 1)
    ]
    result = [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "read"} for n in (0, 1)]
    reply = {"role": "assistant", "type": "message", "model": "m"}
    messages = [
        {"role": "user", "content": "hello"},
        {
            **reply,
            "id": "m0",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}],
        },
        {**reply, "id": "m0", "content": [{"type": "text", "text": "I look"}, *called]},
        {"role": "user", "content": result},
        {**reply, "id": "m1", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": "y"},
    ]
    entries = []
    for place, message in enumerate(messages):
        about = {"type": message["role"], "uuid": ids[place], "sessionId": key["session_id"]}
        about["parentUuid"] = ids[place - 1] if place else None
        time = f"2026-01-01T00:00:0{place}.000Z"
        more = {"isSidechain": False, "timestamp": time, "cwd": "/x", "message": message}
        entries.append(line(place, **about, **more))
    async with FoldlogSessionStore(file_url) as store:
        await store.append(key, entries)
    for copy, _, event in redacted_one_by_one(file_url, tmp_path):
        async with FoldlogSessionStore(copy) as store:
            new = {**entries[-1], "uuid": str(uuid.uuid4()), "parentUuid": ids[-1]}
            await store.append(key, [new])
            loaded = await store.load(key)
            assert [each["uuid"] for each in loaded] == [*ids, new["uuid"]], event
            read = await get_session_messages_from_store(
                store, key["session_id"], directory=str(tmp_path)
            )
            assert [each.uuid for each in read] == [*ids, new["uuid"]], event
            assert all(each.message["content"] for each in read), event


async def test_an_entry_without_a_type_is_refused(store):
    with pytest.raises(foldlog.EventStoreError, match=r"record 1: expected .* text under 'type'"):
        await store.append(KEY, [line(0), {"uuid": str(uuid.uuid4())}])
    assert await store.load(KEY) is None
