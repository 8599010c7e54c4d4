"""Count the syncs of an append: strace counts the calls of fsync and fdatasync between two marks of
the side.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers.environments import Peer
from benchmarks.peers.side import MARK
from benchmarks.peers.worker import Worker

_CALL = re.compile(r"\b(fsync|fdatasync|sync_file_range|msync|syncfs)\((\w+)")
NOT_COUNTED = "not counted: strace cannot trace on this machine"


def count(peer: Peer, python: Path, request: dict[str, Any]) -> str:
    """Return the calls of one append as text, for example ``2 fsync``."""
    if not _can_trace():
        return NOT_COUNTED
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        calls = "trace=fsync,fdatasync,sync_file_range,msync,syncfs"
        strace = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", calls, "-o", str(trace))
        worker = Worker(peer, python, strace)
        try:
            appends = worker.ask("sync", 120, **request)["appends"]
        finally:
            worker.close()
        return _calls_of_an_append(trace.read_text(), appends)


@cache
def _can_trace() -> bool:
    """Return whether strace is installed and may trace. Some containers do not allow tracing."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run(
        ["strace", "-f", "--seccomp-bpf", "-qq", "true"], capture_output=True, check=False
    )
    return tried.returncode == 0


def _calls_of_an_append(trace: str, appends: int) -> str:
    """Return the calls between the two marks, divided by the number of appends, as text."""
    counted: dict[str, int] = {}
    marks = 0
    for name, descriptor in _CALL.findall(trace):
        if descriptor == str(MARK):
            marks += 1
        elif marks == 1:
            counted[name] = counted.get(name, 0) + 1
    if marks != 2:
        raise AssertionError(f"the trace has {marks} marks, not 2")
    counts = [f"{number / appends:.3g} {name}" for name, number in sorted(counted.items())]
    return " + ".join(counts) or "none"
