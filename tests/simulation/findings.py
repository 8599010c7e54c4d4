"""What is known not to hold. The simulation goes around each of these; take a line out, and it finds the fault."""

from __future__ import annotations

OPEN = {
    "recent with a clock that ran back": "after the clock went back, a list is as old as before, whatever age_max_s is",
    "audit of missing revisions": "a copy or a redaction leaves revisions out, and later ones beside them are findings",
    "restore names too many": "a restore names what was erased before the backup, where the id was used again",
}
