"""A pager for output that is longer than the screen."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import TextIO

_STYLE = re.compile(r"\x1b\[[0-9;]*m")


@contextmanager
def paged(*, enabled: bool = True) -> Iterator[None]:
    """Send what is written to stdout to a pager as soon as it is longer than the screen.

    Only where stdout is a terminal. The pager is ``$PAGER``, or ``less``; ``PAGER=`` or ``PAGER=cat`` turns it off. A
    reader who leaves the pager ends the output.
    """
    command = _command() if enabled and sys.stdout.isatty() else []
    if not command:
        yield
        return
    screen = _Screen(sys.stdout, command)
    try:
        with redirect_stdout(screen):
            yield
    except BrokenPipeError:
        if screen.pager is None:
            raise
    finally:
        screen.finish()


def _command() -> list[str]:
    """Return the pager's command line; empty without a pager."""
    chosen = os.environ.get("PAGER")
    try:
        command = ["less"] if chosen is None else shlex.split(chosen)
    except ValueError:
        return []
    return command if command and command[0] != "cat" and shutil.which(command[0]) else []


class _Screen(io.TextIOBase):
    """Holds as much as the screen does, then starts the pager. rich takes it for the terminal."""

    def __init__(self, terminal: TextIO, command: list[str]) -> None:
        self._terminal, self._command = terminal, command
        size = shutil.get_terminal_size()
        self._room, self._columns = size.lines - 1, size.columns
        self._held: list[str] = []
        self.pager: subprocess.Popen[str] | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._terminal.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if self.pager is not None:
            assert self.pager.stdin is not None
            return self.pager.stdin.write(text)
        self._held.append(text)
        lines = _STYLE.sub("", text).split("\n")
        self._room -= len(lines) - 1 + sum(max(0, len(line) - 1) // self._columns for line in lines)
        if self._room < 0:
            self._start()
        return len(text)

    def flush(self) -> None:
        if self.pager is not None and self.pager.stdin is not None and not self.pager.stdin.closed:
            self.pager.stdin.flush()

    def _start(self) -> None:
        self._terminal.flush()
        environment = {"LESS": "R", **os.environ}
        self.pager = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            env=environment,
            encoding=self._terminal.encoding,
            errors="backslashreplace",
        )
        self._interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's
        held, self._held = "".join(self._held), []
        self.write(held)

    def finish(self) -> None:
        """Write the held text, or wait until the reader leaves the pager."""
        if self.pager is None:
            self._terminal.write("".join(self._held))
            self._terminal.flush()
            return
        assert self.pager.stdin is not None
        with suppress(BrokenPipeError):  # the reader has left already
            self.pager.stdin.close()
        self.pager.wait()
        signal.signal(signal.SIGINT, self._interrupted)
