"""The ways in which a command ends."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FINDINGS: Final = 1
"""A part of the input had a problem, which was reported; the rest was done."""
REFUSED: Final = 2
"""Bad input or usage: nothing was done."""


class Refused(Exception):
    """The command cannot do what it was asked. Its message says what, where, and what to do."""
