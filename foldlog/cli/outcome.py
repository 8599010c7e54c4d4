"""How a command can end."""

from __future__ import annotations

from typing import Final

__all__ = ["DONE", "FINDINGS", "REFUSED", "Refused"]

DONE: Final = 0
FINDINGS: Final = 1
"""Something is wrong with some of the input, and was reported; the rest was done."""
REFUSED: Final = 2
"""Bad input or usage: nothing was done."""


class Refused(Exception):
    """The command cannot do what it was asked. Its message says what, where, and what to do."""
