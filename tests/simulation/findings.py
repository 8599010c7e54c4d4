"""What is known not to hold. The simulation goes around each of these; take a line out, and it finds the fault."""

from __future__ import annotations

OPEN = {
    "verify beside a writer": "what another process writes between two transactions of a verification is a finding",
    "recent with a clock that ran back": "after the clock went back, a list is as old as before, whatever age_max_s is",
    "audit of missing revisions": "a copy or a redaction leaves revisions out, and later ones beside them are findings",
    "copy into another history": "a copy that went on by itself is redacted without a receipt, and then refused",
    "restore names too many": "a restore names what was erased before the backup, where the id was used again",
}
