"""The async interface: the same names as ``foldlog``, for asyncio and trio.

    import foldlog.aio

    async with foldlog.aio.open("sqlite:///history.db") as histories:
        history = histories["c1"]
        await history.append(Message(source="user", content="hi"))
        view = await history.view()
        async for event in history.events():
            ...

Each call runs the sync method in a thread that foldlog manages. Steps that may condense run in
separate threads, so a slow model never delays an append.

If a task is cancelled during a write, the write is finished before the cancellation is raised. The
attribute ``outcome`` of the cancellation, an ``Outcome``, has the result of the write. A call that
has not begun, or that only reads, is cancelled at once, and the cancellation has no ``outcome``.
"""

from foldlog._aio import AsyncHistories, AsyncHistory, face_of, open as open
from foldlog.eventstore.inside import Outcome

__all__ = ["AsyncHistories", "AsyncHistory", "Outcome", "face_of"]

# so that every name of ``foldlog`` exists after "aio." too
History = AsyncHistory
Histories = AsyncHistories
