"""A chat server for many users, with streamed replies. If a user disconnects, the history stays
valid.

    CHAT_DB=chat.db uvicorn --app-dir examples --factory fastapi_chat:chat_app --workers 3
    curl --no-buffer --json '{"text": "what time is it?"}' \\
        http://127.0.0.1:8000/users/ann/chats/first

Any worker process may answer a message, and a chat answers one message after the other. The status
is 409 for a message that waits for too long, 410 for a message to an erased chat, and 503 for
messages and ``/healthz`` while the store cannot write, for example on a full disk. If a worker is
killed in the middle of a reply, the next message waits for at most ``TTL_S`` seconds. ``CHAT_DB``
may be a PostgreSQL URL. Take the user from your login, not from the path. Replace ``rehearsal`` by
a function that streams the replies of your model.
"""

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any
from uuid import uuid4

from anyio import CancelScope
from fastapi import Body, FastAPI, Path
from fastapi.responses import JSONResponse, StreamingResponse

import foldlog.aio
from foldlog import ConversationErased, LeaseTaken, Message, StoreUnavailable

# yields texts, and tool calls as in OpenAI's chat
Model = Callable[[list[dict[str, Any]]], AsyncGenerator[Any, None]]
Run = Callable[[str, Any], Awaitable[str]]
Name = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
DB = os.environ.get("CHAT_DB", "chat.db")
TTL_S, WAIT_S = 10.0, 60.0
REFUSALS = {
    LeaseTaken: (409, "another message of this chat is being answered; try again"),
    ConversationErased: (410, "this chat was erased; begin another one"),
    StoreUnavailable: (503, "nothing can be recorded now; try again"),
}


async def rehearsal(messages: list[dict[str, Any]]) -> AsyncGenerator[Any, None]:
    newest = messages[-1]
    if newest["role"] == "user":
        yield "Let me look. "
        yield {
            "id": f"call-{len(messages)}",
            "type": "function",
            "function": {"name": "clock", "arguments": "{}"},
        }
    else:
        yield f"It is {newest['content']}.\n"


async def clock(tool: str, arguments: Any) -> str:
    return time.strftime("%H:%M")


async def answer(
    history: foldlog.aio.AsyncHistory, text: str, model: Model, run: Run
) -> AsyncGenerator[str, None]:
    """Yield an empty text when the message is recorded, and then the parts of the reply. At the
    end, also after an error or a disconnect, the reply so far is recorded and no call is open.
    """
    texts = list[str]()
    async with history.lease(ttl_s=TTL_S, wait_s=WAIT_S):
        try:
            # calls that a killed process left open
            await history.close_open_calls("the server was stopped")
            await history.append(Message(source="user", content=text))
            # by this attribute you can list or erase all chats of a user
            await history.set_attributes(user=history.id.partition("/")[0])
            yield ""
            while True:
                calls = []
                async with aclosing(model((await history.prepare()).to_messages())) as parts:
                    async for part in parts:
                        if isinstance(part, str):
                            texts.append(part)
                            yield part
                        else:
                            calls.append(part)
                # a disconnect does not cancel this append
                with CancelScope(shield=True):
                    await history.append_reply(
                        {"role": "assistant", "content": "".join(texts), "tool_calls": calls}
                    )
                    texts.clear()
                if not calls:
                    break
                for call in await history.open_calls():
                    await history.append_tool_result(call, await run(call.tool, call.arguments))
        finally:
            with CancelScope(shield=True):
                if texts:
                    await history.append(Message(source="agent", content="".join(texts)))
                await history.close_open_calls("the reply was stopped")


class Reply(StreamingResponse):
    async def __call__(self, *asgi: Any) -> None:
        # if the user disconnects, the server does not close the iterator itself
        async with aclosing(self.body_iterator):
            await super().__call__(*asgi)


async def answer_refusal(request: Any, error: Exception) -> JSONResponse:
    status, detail = next(refusal for kind, refusal in REFUSALS.items() if isinstance(error, kind))
    return JSONResponse({"detail": detail}, status)


def chat_app(url: str = DB, model: Model = rehearsal, run: Run = clock) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with foldlog.aio.open(url, condenser="digest") as app.state.histories:
            yield

    app = FastAPI(lifespan=lifespan, exception_handlers=dict.fromkeys(REFUSALS, answer_refusal))

    @app.get("/healthz")
    async def healthz() -> str:
        # a lease writes to the store, but makes no conversation
        async with app.state.histories[f"healthz {uuid4()}"].lease():
            return "ok"

    @app.post("/users/{user}/chats/{chat}")
    async def say(user: Name, chat: Name, text: Annotated[str, Body(embed=True)]) -> Reply:
        reply = answer(app.state.histories[f"{user}/{chat}"], text, model, run)
        await anext(reply)
        return Reply(reply, media_type="text/plain")

    return app
