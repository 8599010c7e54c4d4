"""The async interface: the same names as ``foldlog``, for asyncio and trio.

    import foldlog.aio

    async with foldlog.aio.open("sqlite:///history.db") as histories:
        history = histories["c1"]
        await history.append(Message(source="user", content="hi"))
        view = await history.view()
        async for event in history.events():
            ...

Every call runs the sync method in a thread. Condensing steps have threads of their own, so that a
slow model never delays an append. The loop's default threads are not used.

Cancellation. If a writing call has begun, it is finished: its caller waits for it. Then the
cancellation is raised with the result of the call in its attribute ``outcome`` (an ``Outcome``). If
a call has not begun or only reads, the cancellation is raised at once without an outcome.
"""

from foldlog._aio import AsyncHistories, AsyncHistory, face_of, open as open
from foldlog.eventstore.inside import Outcome

__all__ = ["AsyncHistories", "AsyncHistory", "Outcome", "face_of"]

# so that every name of ``foldlog`` exists after "aio." too
History = AsyncHistory
Histories = AsyncHistories
