"""Disks that fail on demand: ``faults.c``, compiled when a test needs it and loaded before the C
library.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

_COMPILER = shutil.which("gcc") or shutil.which("cc")

WHY_NOT = (
    None
    if _COMPILER and sys.platform == "linux"
    else "faults of a disk need Linux and a C compiler (gcc or cc)"
)
"""Why faults cannot be injected here; None if they can."""


def environment():
    """Return the environment of a process whose disk may fail."""
    return {**os.environ, "LD_PRELOAD": str(_library())}


@functools.cache
def _library():
    assert _COMPILER is not None, WHY_NOT
    source = Path(__file__).with_suffix(".c")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    library = source.parent / "__pycache__" / f"faults-{digest}.so"
    if not library.exists():
        library.parent.mkdir(exist_ok=True)
        compiled = library.with_suffix(f".{os.getpid()}")
        subprocess.run(
            [_COMPILER, "-shared", "-fPIC", "-O1", "-o", compiled, source, "-ldl"], check=True
        )
        compiled.replace(library)
    return library


def fault(name):
    """Return a variable of ``faults.c``, in a process that has loaded it: set its ``value``."""
    return ctypes.c_long.in_dll(ctypes.CDLL(None), f"faults_{name}")


def are_loaded():
    return hasattr(ctypes.CDLL(None), "faults_calls")


def restart_with_faults(arguments):
    """Replace this process by one that has loaded the faults, unless it has loaded them."""
    if not are_loaded():
        os.execve(sys.executable, [sys.executable, *arguments], environment())
