"""The threads in which the service runs its handlers."""

import asyncio
import threading

import pytest

from foldlog._app.server import threads


def test_more_calls_than_threads_wait():
    async def run():
        pool = threads.Threads(2)
        begun = threading.Semaphore(0)
        goes_on = threading.Event()

        def call():
            begun.release()
            assert goes_on.wait(60)
            return threading.get_ident()

        calls = [asyncio.ensure_future(pool.run(call)) for _ in range(5)]
        await asyncio.to_thread(lambda: [begun.acquire(timeout=60) for _ in range(2)])
        assert not begun.acquire(blocking=False)
        goes_on.set()
        assert len(set(await asyncio.gather(*calls))) == 2
        pool.close()

    asyncio.run(run())


def test_successive_calls_use_one_thread():
    async def run():
        pool = threads.Threads()
        used = {await pool.run(threading.get_ident) for _ in range(5)}
        pool.close()
        return used

    assert len(asyncio.run(run())) == 1


def test_a_call_that_raises_stop_iteration_ends():
    async def run():
        pool = threads.Threads()
        call = asyncio.ensure_future(pool.run(lambda: next(iter(()))))
        try:
            await asyncio.wait_for(call, 10)
        finally:
            pool.close()

    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(run())


def test_thread_serves_the_next_loop():
    pool = threads.Threads()
    goes_on = threading.Event()

    async def leave():
        call = asyncio.ensure_future(pool.run(lambda: goes_on.wait(60)))
        await asyncio.sleep(0)
        call.cancel()

    asyncio.run(leave())
    goes_on.set()
    assert asyncio.run(pool.run(lambda: 7)) == 7
    pool.close()
