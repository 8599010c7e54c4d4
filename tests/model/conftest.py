"""These tests ask a small real model. ``scripts/test --model`` installs and runs it, so they are not
collected elsewhere.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PYTHON = os.environ.get("FOLDLOG_TEST_MODEL", "")
"""The Python of the environment with the model."""
CONTEXT_TOKENS = 1_536


def pytest_ignore_collect() -> bool | None:
    return None if PYTHON else True


class ModelServer(NamedTuple):
    base_url: str
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.kill()
        with self.process:  # its end is waited for, and its output closed
            pass


StartServer = Callable[..., ModelServer]


@pytest.fixture(scope="session")
def start_server(tmp_path_factory) -> Iterator[StartServer]:
    log = (tmp_path_factory.mktemp("model") / "log").open("wb")
    servers: list[ModelServer] = []

    def start(context_tokens: int = CONTEXT_TOKENS) -> ModelServer:
        command = [PYTHON, Path(__file__).with_name("server.py"), str(context_tokens)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, f"the model server ended; see {log.name}"
        servers.append(ModelServer(f"{address}/v1", process))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()
    log.close()


@pytest.fixture(scope="session")
def server(start_server) -> ModelServer:
    return start_server()
