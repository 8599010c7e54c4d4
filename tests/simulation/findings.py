"""What is known not to hold. The simulation goes around each of these; take a line out, and it finds the fault."""

from __future__ import annotations

OPEN = {
    "what followed lost commits": "positions of commits that a power cut took (relaxed) are given again: a search index"
    " or an audit file that had read them keeps them, and misses what has these positions now",
}
