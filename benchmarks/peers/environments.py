"""Make an environment for each peer, in ``.cache/peers/environments``. The peers need conflicting
versions of packages, and some conflict with foldlog's packages.

An environment is made again when its requirements or its Python have changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "peers"
_REQUIREMENTS = Path(__file__).parent / "requirements"


Say = Callable[[str], None]
"""Shows a message about the progress."""


class NotAvailable(Exception):
    """A peer cannot run on this machine. The row of the peer shows the reason."""


@dataclass(frozen=True)
class Peer:
    name: str
    """The peer's name in tables and in the plot."""
    side: str
    """The module of ``benchmarks.peers.sides``."""
    arguments: tuple[str, ...] = ()
    environment: str | None = None
    """The name of the peer's file in ``requirements/``. If None, the peer runs in the current
    environment.
    """
    python: tuple[int, int] = (3, 11)
    """The oldest version of Python that the peer supports."""

    @property
    def folder(self) -> str:
        """The name of the folder with the peer's stores. Peers that write the same stores share a
        folder.
        """
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
"""The peers that need no environment."""


def python_of(peer: Peer, say: Say) -> Path:
    """Return the Python of a peer's environment. The environment is made if it does not exist.
    Raises NotAvailable.
    """
    if peer.environment is None:
        return Path(sys.executable)
    environment = CACHE / "environments" / peer.environment
    requirements = _REQUIREMENTS / f"{peer.environment}.txt"
    base = _base(peer.python)
    stamp = environment / "made.stamp"
    content = f"{_version(base)}\n{requirements.read_text()}"
    if stamp.exists() and stamp.read_text() == content:
        return environment / "bin" / "python"
    say(
        f"installing {', '.join(requirements.read_text().split())} in {environment.relative_to(ROOT)}"
    )
    shutil.rmtree(environment, ignore_errors=True)
    environment.parent.mkdir(parents=True, exist_ok=True)
    _run([base, "-m", "venv", environment])
    _run(
        [
            environment / "bin" / "python",
            "-m",
            "pip",
            "install",
            "-qq",
            "--disable-pip-version-check",
            "-r",
            requirements,
        ]
    )
    stamp.write_text(content)
    return environment / "bin" / "python"


def _base(oldest: tuple[int, int]) -> Path:
    for python in _pythons(oldest):
        if _version(python):
            return python
    raise NotAvailable(
        f"needs Python {oldest[0]}.{oldest[1]} or later, which is not on this machine"
    )


def _pythons(oldest: tuple[int, int]) -> Iterator[Path]:
    """Yield the current Python if it is new enough. Otherwise yield the Pythons of PATH and of
    pyenv that are new enough, the oldest version first.
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
    """Return the version of a Python, or an empty text if it does not run. For example, pyenv puts
    commands on PATH that do not run.
    """
    answer = subprocess.run([python, "-V"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _run(command: Sequence[str | Path]) -> None:
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        output_lines = (process.stderr or process.stdout).strip().splitlines()
        raise NotAvailable(
            f"could not be installed: {output_lines[-1] if output_lines else f'exit status {process.returncode}'}"
        )
