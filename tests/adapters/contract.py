"""What every adapter promises of what a program of its SDK adds to one conversation.

The tests of an adapter have a class of these with its SDK. A writer of two is ``python -m tests.adapters.contract
MODULE URL NAME``: it adds 20 things with the class of that module.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import foldlog

ROOT = Path(__file__).parents[2]


def statements(histories: foldlog.Histories, work: Callable[[], object]) -> int:
    """Return the number of queries that a store runs for ``work``."""
    recorder = histories.store.database.recorder
    query, count = recorder.query, 0

    def counted(read: Callable[[Any], Any]) -> Any:
        nonlocal count
        count += 1
        return query(read)

    recorder.query = counted  # type: ignore[method-assign]
    try:
        work()
    finally:
        recorder.query = query  # type: ignore[method-assign]
    return count


def killed(program: str, *arguments: str) -> list[str]:
    """Run a program that kills itself, and return the lines that it wrote before."""
    command = [sys.executable, "-c", program, *arguments]
    died = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert died.returncode == -9, died.stderr[-2_000:]
    return died.stdout.splitlines()


class Keeps:
    runtime: str
    """The first part of the ids of conversations."""

    def opened(self, url: str) -> AbstractAsyncContextManager[Any]:
        """Open what the SDK is given."""
        raise NotImplementedError

    async def add(self, store: Any, *names: str) -> None:
        """Add things with these names by one call, and again where another program was quicker."""
        raise NotImplementedError

    async def names(self, store: Any) -> list[str]:
        """Return the names of all things, in their order. Fails where a thing is not whole."""
        raise NotImplementedError

    async def test_a_cancelled_call_is_whole_or_absent_and_over(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first")
            for number in range(20):
                before = await self.names(store)
                added = [f"{number}-{n}" for n in range(3)]
                adding = asyncio.ensure_future(self.add(store, *added))
                await asyncio.sleep(number / 4_000)
                adding.cancel()
                await asyncio.gather(adding, return_exceptions=True)
                now = await self.names(store)
                assert now in (before, [*before, *added])
                await asyncio.sleep(0.002)
                assert await self.names(store) == now

    @pytest.mark.parametrize("url", ["sqlite"], indirect=True)
    async def test_a_store_that_is_closed_by_either_face_leaves_no_thread_and_no_connection(self, url):
        before = {thread for thread in threading.enumerate() if thread.name.startswith("foldlog")}
        for number in range(20):
            store = self.opened(url)
            if hasattr(store, "__enter__") and number % 2:
                with store:
                    await self.add(store, str(number))
            else:
                async with store as opened:
                    await self.add(opened, str(number))
        for thread in threading.enumerate():
            if thread.name.startswith("foldlog") and thread not in before:
                await asyncio.to_thread(thread.join, 60)
                assert not thread.is_alive()
        opened = [os.path.realpath(each) for each in Path("/proc/self/fd").glob("*")]
        assert not [path for path in opened if path.startswith(url.removeprefix("sqlite:///"))]

    async def test_what_is_old_is_erased_and_begins_again(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first", "second")
            histories = store.histories.sync
            row = next(row for row in histories.store.iter_conversations() if "/" in row.id)
            assert row.id.partition("/")[0] == self.runtime
            assert list(histories.maintenance.retain(timedelta(0), reason="retention", detach_forks=True))
            again = self.opened(histories)
            await self.add(again, "third")
            assert await self.names(again) == ["third"]
            left = list(histories.maintenance.retain(timedelta(hours=1), reason="retention"))
            assert left == []

    @pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
    async def test_two_processes_on_one_conversation_lose_nothing(self, url):
        async with self.opened(url) as store:
            await self.add(store, "first")
        command = [sys.executable, "-m", "tests.adapters.contract", type(self).__module__, url]
        writers = [subprocess.Popen([*command, name], cwd=ROOT) for name in "ab"]
        assert [writer.wait(timeout=300) for writer in writers] == [0, 0]
        async with self.opened(url) as store:
            names = await self.names(store)
        for name in "ab":
            assert [each for each in names if each.startswith(f"{name}-")] == [f"{name}-{n}" for n in range(20)]
        assert len(names) == 41

    async def test_a_server_that_restarts_costs_nothing(self, restartable):
        async with self.opened(restartable.url(schema="s", patience_s="60")) as store:
            for number in range(20):
                if number == 10:
                    restartable.stop("immediate")
                adding = asyncio.ensure_future(self.add(store, str(number)))
                if number == 10:
                    await asyncio.sleep(0.3)  # it waits for the server now
                    restartable.start()
                await adding
            assert await self.names(store) == [str(number) for number in range(20)]


async def _write(module: str, url: str, name: str) -> None:
    keeps = importlib.import_module(module).TestKeeps()
    async with keeps.opened(url) as store:
        for number in range(20):
            await keeps.add(store, f"{name}-{number}")


if __name__ == "__main__":
    asyncio.run(_write(*sys.argv[1:]))
