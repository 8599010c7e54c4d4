"""A pager for output that is longer than the screen."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress


class _Terminal(io.TextIOWrapper):
    """The stream to the pager. ``isatty`` returns true, because the pager prints to a terminal."""

    def isatty(self) -> bool:
        return True


@contextmanager
def page_output() -> Iterator[None]:
    """Send the output on stdout to a pager, if stdout is a terminal.

    The pager is ``$PAGER``, or ``less`` by default. ``less`` ends at once if the output fits on the
    screen. ``PAGER=`` or ``PAGER=cat`` turns the pager off, and so does a terminal that cannot move
    its cursor: before its first line, ``less`` waits there for a key. If the user quits the pager,
    the output ends. A pager reads the characters of the locale, also where Python writes UTF-8 in
    any locale.
    """
    command = _pager_command() if sys.stdout.isatty() else []
    if not command:
        yield
        return
    import locale  # most lists go to no terminal
    import subprocess

    sys.stdout.flush()
    environment = {"LESS": "FRX", **os.environ}
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment)
    assert pager.stdin is not None
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the pager
    try:
        with (
            suppress(BrokenPipeError),  # the user has quit the pager
            _Terminal(pager.stdin, locale.getencoding(), "backslashreplace") as screen,
            redirect_stdout(screen),
        ):
            yield
    finally:
        pager.wait()
        signal.signal(signal.SIGINT, interrupted)


def _pager_command() -> list[str]:
    """Return the command line of the pager, or nothing for no pager."""
    import shlex  # most lists go to no terminal
    import shutil

    chosen = os.environ.get("PAGER")
    if chosen is None and os.environ.get("TERM", "dumb") == "dumb":
        return []
    try:
        command = ["less"] if chosen is None else shlex.split(chosen)
    except ValueError:
        return []
    if command and command[0] != "cat" and shutil.which(command[0]):
        return command
    return []
