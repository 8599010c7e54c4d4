"""The ways in which a command ends."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FINDINGS: Final = 1
"""A part had a problem, which was reported; the rest was done. A command that has printed a finding
ends so, whatever it returns.
"""
REFUSED: Final = 2
"""Bad input or usage: nothing was done. An error says why, also after findings."""

INTERRUPTED: Final = 130  # the status that a shell reports for a program that SIGINT ended
INTERRUPTED_WORDS: Final = "interrupted: completed work was kept, no partial data was written"


class Refused(Exception):
    """The command cannot do what it was asked. Its message says what, where, and what to do."""


def is_of_damage(error: Exception) -> bool:
    """Return whether an error says that stored bytes cannot be read: then the rest of the work can
    go on.
    """
    from foldlog.eventstore import CorruptEvent, StoreDamaged

    return isinstance(error, CorruptEvent | StoreDamaged)
