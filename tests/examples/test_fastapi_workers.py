"""The chat server as three processes: all of them serve one chat, and one process is killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import foldlog
from foldlog import Action, CondensationAction, Message, Observation
from tests.ports import free_port
from tests.waiting import until

httpx = pytest.importorskip("httpx", reason="the group test leaves it out, and fastapi")
EXAMPLES = Path(__file__).parents[2] / "examples"
APP = """
import asyncio, os
import fastapi_chat

async def run(tool, arguments):
    if os.path.exists("hang"):
        await asyncio.sleep(600)
    return await fastapi_chat.clock(tool, arguments)

def app():
    return fastapi_chat.chat_app(run=run)

fastapi_chat.TTL_S = 3.0
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "chat.db")
    return request.getfixturevalue("postgres_url")()


@contextmanager
def serving(db: str, folder: Path) -> Iterator[str]:
    """Yield the address of a server with three workers on the store."""
    (folder / "workers.py").write_text(APP)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "--factory",
        "workers:app",
        "--workers",
        "3",
        "--port",
        str(port),
    ]
    path = f"{folder}:{EXAMPLES}:{os.environ.get('PYTHONPATH', '')}"
    environment = {**os.environ, "CHAT_DB": db, "PYTHONPATH": path}
    with (folder / "out").open("wb") as out:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        until(lambda: (folder / "out").read_text().count("Application startup complete") >= 3)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(60)


async def _say(client: httpx.AsyncClient, address: str, text: str) -> tuple[int, str]:
    reply = await client.post(address, json={"text": text})
    return reply.status_code, reply.text


@pytest.fixture
def served(db: str, tmp_path: Path) -> Iterator[str]:
    with serving(db, tmp_path) as address:
        yield f"{address}/users/ann/chats/first"


def test_three_workers_one_of_them_killed(served: str, db: str, tmp_path: Path):
    async def at_once() -> list[tuple[int, str]]:
        async with httpx.AsyncClient(timeout=120) as client:
            return await asyncio.gather(*(_say(client, served, f"{n}?") for n in range(24)))

    replies = asyncio.run(at_once())
    answered = sum(status == 200 for status, _ in replies)
    assert Counter(status for status, _ in replies) == Counter({200: answered, 409: 24 - answered})
    assert answered > 0
    assert all(text.startswith("Let me look. It is ") for status, text in replies if status == 200)
    with foldlog.open(db) as histories:
        history = histories["ann/first"]
        so_far = [type(event) for event in history.events() if event.shown]
        assert so_far == [Message, Action, Observation, Message] * answered
        version = len(history)
        assert history.current_lease() is None

        async def killed() -> None:
            """A worker is killed while a tool of its reply runs; then the chat is asked again."""
            (tmp_path / "hang").touch()
            async with httpx.AsyncClient(timeout=120) as client:
                hanging = asyncio.ensure_future(_say(client, served, "killed?"))
                await asyncio.to_thread(until, history.open_calls)
                assert list(histories.to_resume()) == []
                os.kill(int(history.current_lease().worker.rpartition(":")[2]), signal.SIGKILL)
                (tmp_path / "hang").unlink()
                with pytest.raises(httpx.TransportError):
                    await hanging
                await asyncio.to_thread(until, lambda: list(histories.to_resume()) == ["ann/first"])
                status, text = await _say(client, served, "and now?")
                assert (status, text.split(" It is ")[0]) == (200, "Let me look.")

        asyncio.run(killed())
        later = history.events(version)
        # its View is long by then
        events = [event for event in later if not isinstance(event, CondensationAction)]
        assert [type(event) for event in events] == [*[Message, Action, Observation] * 2, Message]
        assert events[2].content == "interrupted: the server was stopped"
        assert history.view().to_messages()[-1]["role"] == "assistant"
