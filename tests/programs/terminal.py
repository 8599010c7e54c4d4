"""A program with its interface for people, in a pseudo-terminal."""

import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path

_SIZE = struct.pack("HHHH", 50, 160, 0, 0)
_CONTROL = re.compile(
    rb"\x1b\[[0-9;?>=<]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-B0]|\x1b[=>78]"
)
_ANSWERS = {b"\x1b[6n": "\x1b[1;1R", b"\x1b[c": "\x1b[?1;2c"}
"""What a terminal answers when a program asks for the cursor's place, or for the kind of terminal."""
_CONTROL_C = "\x03"
_SECONDS_MAX = 120
_LOOK_EVERY_S = 1.0


class Terminal:
    """``wait_for`` waits for words on the screen, and ``press`` types. ``leave`` ends the program
    as a person does, and ``close`` kills it with its children if it still runs.
    """

    def __init__(self, command: Sequence[str], work: Path, environment: Mapping[str, str]) -> None:
        self._process, self._screen = pty.fork()
        if self._process == 0:
            os.chdir(work)
            os.execvpe(command[0], command, {**environment, "TERM": "xterm-256color"})
        ioctl(self._screen, termios.TIOCSWINSZ, _SIZE)
        self._shown = b""
        self._has_ended = False

    @property
    def text(self) -> str:
        """All that was shown, without spaces, because a program may move the cursor instead."""
        return re.sub(r"\s", "", _CONTROL.sub(b"", self._shown).decode(errors="replace"))

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode())

    def wait_for(self, words: str) -> None:
        self.wait_until(lambda: re.sub(r"\s", "", words) in self.text)

    def wait_until(self, is_reached: Callable[[], bool], keys: str = "") -> None:
        """Wait, and press ``keys`` again and again, because a program that still draws may take
        them for a part of the text before.
        """
        end = time.monotonic() + _SECONDS_MAX
        while not is_reached():
            assert not self._has_ended, f"the program has ended: {self.text[-3000:]}"
            assert time.monotonic() < end, self.text[-3000:]
            if keys:
                self.press(keys)
            self._read()

    def leave(self) -> None:
        self.wait_until(lambda: self._has_ended, _CONTROL_C)

    def _read(self) -> None:
        if not select.select([self._screen], [], [], _LOOK_EVERY_S)[0]:
            return
        try:
            shown = os.read(self._screen, 2**16)
        except OSError:  # nobody has the terminal open any more
            self._has_ended = True
            return
        self._shown += shown
        for question, answer in _ANSWERS.items():
            if question in shown:
                self.press(answer)

    def close(self) -> None:
        if not self._has_ended:
            with suppress(ProcessLookupError):
                os.killpg(self._process, signal.SIGKILL)
        os.close(self._screen)
        os.waitpid(self._process, 0)
