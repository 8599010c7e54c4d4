"""The async face: the same names as ``foldlog``, for asyncio and trio.

    import foldlog.aio

    async with foldlog.aio.open("sqlite:///history.db") as histories:
        history = histories["c1"]
        await history.append(Message(source="user", content="hi"))
        view = await history.view()
        async for event in history.events():
            ...

Every call runs the sync method in a thread of this face. Condensing steps have threads of their
own, so that a slow model never delays an append. The loop's default threads are not used.

Cancellation. A call that writes and has begun is finished: its caller waits for it, and then gets
the cancellation with the result of the call in its attribute ``outcome`` (an ``Outcome``). A call
that has not begun is withdrawn, and a call that only reads is left to its thread: both raise at
once, without an outcome.
"""

from foldlog._aio import AsyncHistories, AsyncHistory, face_of, open as open
from foldlog.eventstore.inside import Outcome

__all__ = ["AsyncHistories", "AsyncHistory", "Outcome", "face_of"]

# so that "aio." before a name of the face is its async form
History = AsyncHistory
Histories = AsyncHistories
