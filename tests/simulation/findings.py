"""What is known not to hold. The simulation goes around each of these; take a line out, and it finds the fault."""

from __future__ import annotations

OPEN = {}
