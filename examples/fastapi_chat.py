"""A chat server for many users: replies are streamed, and a user who goes away leaves a valid history.

    uvicorn --app-dir examples --factory fastapi_chat:chat_app
    curl --no-buffer --json '{"text": "what time is it?"}' http://127.0.0.1:8000/users/ann/chats/first

Messages to one chat are answered one after the other; of several worker processes, the same one must get all of them.
Take the user from your login, not from the path. ``rehearsal`` stands in for a function that streams from your model.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any
from weakref import WeakValueDictionary

from anyio import CancelScope
from fastapi import Body, FastAPI, Path
from fastapi.responses import StreamingResponse

import foldlog.aio
from foldlog import Message

Model = Callable[[list[dict[str, Any]]], AsyncGenerator[Any, None]]  # yields texts, and tool calls as in OpenAI's chat
Run = Callable[[str, Any], Awaitable[str]]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


async def rehearsal(messages: list[dict[str, Any]]) -> AsyncGenerator[Any, None]:
    yield "Let me look. " if messages[-1]["role"] == "user" else f"It is {messages[-1]['content']}.\n"
    if messages[-1]["role"] == "user":
        yield {"id": f"call-{len(messages)}", "type": "function", "function": {"name": "clock", "arguments": "{}"}}


async def clock(tool: str, arguments: Any) -> str:
    return time.strftime("%H:%M")


async def answer(history: foldlog.aio.AsyncHistory, text: str, model: Model, run: Run) -> AsyncGenerator[str, None]:
    """Yield the reply in pieces. However it ends, what was said is recorded and no call stays open."""
    said, calls = list[str](), [{}]
    async with locks.setdefault(history.id, asyncio.Lock()):
        try:
            await history.interrupt("the server was stopped")  # what an earlier process left open
            await history.append(Message(source="user", content=text))
            while calls:
                calls = []
                async with aclosing(model((await history.prepare()).to_messages())) as parts:
                    async for part in parts:
                        (said if isinstance(part, str) else calls).append(part)
                        if isinstance(part, str):
                            yield part
                with CancelScope(shield=True):  # the reply is recorded once, whenever the user goes away
                    await history.append_reply({"role": "assistant", "content": "".join(said), "tool_calls": calls})
                    said.clear()
                for call in await history.open_calls():
                    await history.append_tool_result(call, await run(call.tool, call.arguments))
        finally:
            with CancelScope(shield=True):
                if said:
                    await history.append(Message(source="agent", content="".join(said)))
                await history.interrupt("the reply was stopped")


class Reply(StreamingResponse):
    async def __call__(self, *asgi: Any) -> None:
        async with aclosing(self.body_iterator):  # a server that sees the user go away leaves it in the middle
            await super().__call__(*asgi)


def chat_app(url: str = "sqlite:///chat.db", model: Model = rehearsal, run: Run = clock) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with foldlog.aio.open(url, condenser="digest") as app.state.histories:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/users/{user}/chats/{chat}")
    async def say(user: Name, chat: Name, text: Annotated[str, Body(embed=True)]) -> Reply:
        return Reply(answer(app.state.histories[f"{user}/{chat}"], text, model, run), media_type="text/plain")

    return app
