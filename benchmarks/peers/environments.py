"""An environment for each peer, in ``.cache/peers/environments``: the peers exclude one another,
and some exclude us.

An environment is made again when its requirements or its Python have changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "peers"
_REQUIREMENTS = Path(__file__).parent / "requirements"


class NotAvailable(Exception):
    """A side cannot run here. The message says why, and stands in its row."""


@dataclass(frozen=True)
class Peer:
    name: str
    """What tables and the plot call it."""
    side: str
    """The module of ``benchmarks.peers.sides``."""
    arguments: tuple[str, ...] = ()
    environment: str | None = None
    """The file of its requirements; None: the environment that runs this."""
    python: tuple[int, int] = (3, 11)
    """The oldest Python that it runs on."""

    @property
    def folder(self) -> str:
        """The name of the folder of its stores, which sides that write the same stores share."""
        snapshot_option = [argument for argument in self.arguments if argument == "--snapshots"]
        return "".join([self.side, *snapshot_option])


PEERS = (
    Peer("foldlog", "foldlog_history"),
    Peer("sqlite3 by hand", "raw_sqlite"),
    Peer("LangGraph", "langgraph_sqlite", environment="langgraph"),
    Peer(
        "eventsourcing, snapshots",
        "eventsourcing_library",
        ("--snapshots",),
        environment="eventsourcing",
    ),
    Peer("eventsourcing", "eventsourcing_library", environment="eventsourcing"),
    Peer("OpenAI Agents", "openai_agents", environment="openai_agents"),
    Peer(
        "OpenAI Agents, newest 60", "openai_agents", ("--newest", "60"), environment="openai_agents"
    ),
    Peer("Google ADK", "google_adk", environment="google_adk"),
    Peer("Google ADK, newest 60", "google_adk", ("--newest", "60"), environment="google_adk"),
    Peer("OpenHands", "openhands_files", environment="openhands", python=(3, 12)),
)
HERE = PEERS[:2]
"""The sides that need no environment."""


def python_of(peer: Peer, say: Sayer) -> Path:
    """Return the Python of a peer's environment, which is made if it is not there. Raises
    NotAvailable.
    """
    if peer.environment is None:
        return Path(sys.executable)
    made = CACHE / "environments" / peer.environment
    requirements = _REQUIREMENTS / f"{peer.environment}.txt"
    base = _base(peer.python)
    stamp, wanted = made / "made.stamp", f"{_version(base)}\n{requirements.read_text()}"
    if stamp.exists() and stamp.read_text() == wanted:
        return made / "bin" / "python"
    say(f"installing {', '.join(requirements.read_text().split())} in {made.relative_to(ROOT)}")
    shutil.rmtree(made, ignore_errors=True)
    made.parent.mkdir(parents=True, exist_ok=True)
    _run([base, "-m", "venv", made])
    _run(
        [
            made / "bin" / "python",
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "-r",
            requirements,
        ]
    )
    stamp.write_text(wanted)
    return made / "bin" / "python"


def _base(oldest: tuple[int, int]) -> Path:
    for python in _pythons(oldest):
        if _version(python):
            return python
    raise NotAvailable(
        f"needs Python {oldest[0]}.{oldest[1]} or later, which is not on this machine"
    )


def _pythons(oldest: tuple[int, int]) -> Iterator[Path]:
    """Yield this Python if it is new enough, then those of PATH and of pyenv, the oldest that is
    new enough first.
    """
    if sys.version_info[:2] >= oldest:
        yield Path(sys.executable)
        return
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(oldest[1], oldest[1] + 3):
        executable = shutil.which(f"python3.{minor}")
        if executable:
            yield Path(executable)
        yield from sorted(pyenv.glob(f"3.{minor}.*/bin/python"))


def _version(python: Path) -> str:
    """Return the version of a Python, or nothing if it does not run: pyenv puts names on PATH that
    do not.
    """
    asked = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def _run(command: Sequence[str | Path]) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        output_lines = (process.stderr or process.stdout).strip().splitlines()
        raise NotAvailable(
            f"could not be installed: {output_lines[-1] if output_lines else f'exit status {process.returncode}'}"
        )


class Sayer:
    """Where progress is told: standard error, a line each."""

    def __call__(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)
