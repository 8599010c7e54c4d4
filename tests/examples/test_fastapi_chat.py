"""The chat server: many users at once, and a user who goes away at any moment leaves a history that
goes on.
"""

import asyncio
import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect

import foldlog
import foldlog.aio
from foldlog import Action, Message, Observation
from foldlog.eventstore.recorders.sqlite import SQLiteRecorder

httpx = pytest.importorskip("httpx", reason="the group test leaves it out, and fastapi")
EXAMPLE = Path(__file__).parents[2] / "examples/fastapi_chat.py"


@pytest.fixture(scope="module")
def chat():
    spec = importlib.util.spec_from_file_location("fastapi_chat", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path / 'chat.db'}"


def say(client):
    return client.post("/users/ann/chats/first", json={"text": "hello"})


async def clock(tool, arguments):
    return "noon"


async def forever(*_):
    await asyncio.Event().wait()


def served(app, work):
    """Return what ``work(client)`` returns while the app is up."""

    async def serve():
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://chat") as client,
        ):
            return await work(client)

    return asyncio.run(serve())


async def leave(app, until, *, spec_version):
    """Post a message as a server does whose user goes away when ``until(text so far)`` first holds.

    A server of ASGI 2.3 says so by ``receive``, one of 2.4 by an ``OSError`` of ``send``.
    """
    body = json.dumps({"text": "hello"}).encode()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": spec_version},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/users/ann/chats/first",
        "raw_path": b"/users/ann/chats/first",
        "root_path": "",
        "query_string": b"",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ],
        "client": ("ann", 1),
        "server": ("chat", 80),
    }
    requests = [{"type": "http.request", "body": body, "more_body": False}]
    text = []

    async def receive():
        if requests:
            return requests.pop()
        while not until("".join(text)):
            await asyncio.sleep(0.001)
        return {"type": "http.disconnect"}

    async def send(message):
        text.append(message.get("body", b"").decode())
        if spec_version == "2.4" and until("".join(text)):
            raise OSError("the user went away")

    await app(scope, receive, send)


def recorded(url, id="ann/first"):
    with foldlog.open(url) as histories:
        history = histories[id]
        assert history.open_calls() == ()
        assert history.attributes() == {"user": id.partition("/")[0]}
        shown_events = [event for event in history.events() if event.shown]
        return shown_events, history.view().to_messages()


def test_many_users_have_their_own_histories(chat, url):
    async def all_at_once(client):
        posts = (
            client.post(f"/users/u{user}/chats/c", json={"text": f"{user}?"})
            for user in range(8)
            for _ in range(2)
        )
        return await asyncio.gather(*posts)

    replies = served(chat.chat_app(url, chat.rehearsal, clock), all_at_once)
    assert {(reply.status_code, reply.text) for reply in replies} == {
        (200, "Let me look. It is noon.\n")
    }
    for user in range(8):
        events, _ = recorded(url, f"u{user}/c")
        assert [type(event) for event in events] == [Message, Action, Observation, Message] * 2
        assert [event.content for event in events if event.source == "user"] == [f"{user}?"] * 2


@pytest.mark.parametrize("spec_version", ["2.3", "2.4"])
def test_text_is_kept_when_the_user_leaves(chat, url, spec_version):
    async def model(messages):
        yield "Once upon "
        yield "a time"
        if spec_version == "2.3":
            await forever()
        yield " never sent"

    app = chat.chat_app(url, model, clock)

    async def work(client):
        with nullcontext() if spec_version == "2.3" else pytest.raises(ClientDisconnect):
            await leave(app, lambda text: text.endswith("a time"), spec_version=spec_version)
        # closed when the request ends, and not when the garbage is collected: the chat is free, the
        # text recorded
        history = app.state.histories["ann/first"]
        return [(event.source, event.content) async for event in history.events() if event.shown]

    assert served(app, work) == [("user", "hello"), ("agent", "Once upon a time")]
    assert [message["role"] for message in recorded(url)[1]] == ["user", "assistant"]


def test_chat_goes_on_after_an_abandoned_call(chat, url):
    called = []

    async def run(tool, arguments):
        called.append(tool)
        return await (clock if len(called) > 1 else forever)(tool, arguments)

    app = chat.chat_app(url, chat.rehearsal, run)

    async def work(client):
        await leave(app, lambda _: called == ["clock"], spec_version="2.3")
        return await client.post("/users/ann/chats/first", json={"text": "and now?"})

    assert served(app, work).text == "Let me look. It is noon.\n"
    events, messages = recorded(url)
    assert [type(event) for event in events] == [*([Message, Action, Observation] * 2), Message]
    assert events[2].content == "interrupted: the reply was stopped"
    roles = ["user", "assistant", "tool", "user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in messages] == roles


def test_user_leaves_while_the_reply_is_recorded(chat, url, monkeypatch):
    recording = []
    append_reply = foldlog.aio.AsyncHistory.append_reply

    async def slowly(history, reply):
        result = await append_reply(history, reply)
        recording.append(result)
        for _ in range(100):  # turns of the loop, in which the user is seen to be gone
            await asyncio.sleep(0.001)
        return result

    async def model(messages):
        yield "Once"

    monkeypatch.setattr(foldlog.aio.AsyncHistory, "append_reply", slowly)
    app = chat.chat_app(url, model, clock)
    served(app, lambda _: leave(app, lambda _: recording != [], spec_version="2.3"))
    assert [event.content for event in recorded(url)[0]] == ["hello", "Once"]


def test_busy_chat_answers_409(chat, url, monkeypatch):
    monkeypatch.setattr(chat, "WAIT_S", 0.0)
    app = chat.chat_app(url, chat.rehearsal, clock)
    with foldlog.open(url) as histories, histories["ann/first"].lease(worker="web-2"):
        reply = served(app, say)
        assert reply.status_code == 409
        assert reply.json() == {
            "detail": "another message of this chat is being answered; try again"
        }
        assert histories["ann/first"].version() == 0
    reply = served(app, say)
    assert reply.status_code == 200


def test_erased_chat_answers_410(chat, url):
    app = chat.chat_app(url, chat.rehearsal, clock)
    assert served(app, say).status_code == 200
    with foldlog.open(url) as histories:
        histories.erase("ann/first", reason="test")
    assert served(app, say).status_code == 410


def test_a_full_disk_fails_the_health_check(chat, url, monkeypatch):
    def full(*_, **__):
        raise foldlog.StoreUnavailable("database or disk is full", kind="full")

    async def post_and_check_health(client):
        message = await say(client)
        return (await client.get("/healthz")).status_code, message.status_code

    async def work(client):
        with monkeypatch.context() as away:
            away.setattr(SQLiteRecorder, "transact", full)
            refused = await post_and_check_health(client)
        return refused, await post_and_check_health(client)

    assert served(chat.chat_app(url, chat.rehearsal, clock), work) == ((503, 503), (200, 200))
    with foldlog.open(url) as histories:
        assert list(histories) == ["ann/first"]
        assert len(histories.maintenance.verify()) == 2
