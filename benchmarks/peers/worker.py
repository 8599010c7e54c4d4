"""Start the process that runs a peer (a *side*), send requests to it, and stop it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import ROOT, Peer

START_S = 180
_QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"}
"""OpenHands imports litellm, which uses the network on import. Without a network, the import of
litellm 1.105.3 sometimes fails.
"""


class SideFailed(Exception):
    """A side raised an error, ended, or did not answer. The row of the peer shows the message."""


class Worker:
    """The process of one side. ``before`` is a command that starts the process, such as strace."""

    def __init__(self, peer: Peer, python: Path, before: Sequence[str] = ()) -> None:
        self.peer = peer
        self._told = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            [*before, str(python), "-m", f"benchmarks.peers.sides.{peer.side}", *peer.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._told,
            cwd=ROOT,
            env={**os.environ, **_QUIET},
            bufsize=0,
        )
        self._rest = b""
        try:
            begun = self._answer(START_S)
        except SideFailed:
            self.close()
            raise
        self.versions: dict[str, str] = begun["versions"]
        self.shows: str = begun["shows"]

    def ask(self, do: str, timeout_s: float, **request: Any) -> dict[str, Any]:
        """Send a request, and return the answer. If the process does not answer in time, kill the
        process. Raises SideFailed.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps({"do": do, **request}) + "\n").encode())
        except BrokenPipeError as error:
            raise SideFailed(self._last_words()) from error
        return self._answer(timeout_s)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
            if not ready:
                self._process.kill()
                raise SideFailed(f"no answer in {timeout_s:g} s")
            some = self._process.stdout.read(1 << 16)
            if not some:
                raise SideFailed(self._last_words())
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SideFailed(answer["error"])
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        self._told.seek(0)
        lines = self._told.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with status {status}"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._told.close()
