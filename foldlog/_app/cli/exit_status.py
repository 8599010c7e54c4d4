"""The exit statuses of a command."""

from __future__ import annotations

DONE = 0
FINDINGS = 1
"""The status after a finding. All other work was done. Every command that printed a finding ends
with status 1.
"""
REFUSED = 2
"""The status after bad input or wrong usage: nothing was done, and an error message says why."""
UNPROVED = 3
"""The status of a check that found no change, but could not check everything, for example because
a key is missing.
"""
INTERRUPTED = 130
"""The status that a shell reports for a program that SIGINT ended."""
INTERRUPTED_WORDS = "interrupted: completed work was kept, no partial data was written"


class Refused(Exception):
    """The command cannot do what the user asked. The message says what is wrong, where, and what to
    do.
    """
