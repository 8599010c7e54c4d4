"""How long a call waits for a server that is unreachable, and in which steps."""

from __future__ import annotations

import random
import time
from typing import Final

_PAUSE_FIRST_S: Final = 0.02
_PAUSE_MAX_S: Final = 1.0


class Patience:
    """Wait a little longer each time, at random, until ``total_s`` have passed since the first wait."""

    def __init__(self, total_s: float) -> None:
        self.total_s = total_s
        self._ends: float | None = None
        self._pause_s = _PAUSE_FIRST_S

    def wait(self) -> bool:
        """Return False at once when the time is over."""
        now = time.monotonic()
        if self._ends is None:
            self._ends = now + self.total_s
        if now >= self._ends:
            return False
        time.sleep(min(self._pause_s * random.uniform(0.5, 1.5), self._ends - now))
        self._pause_s = min(2 * self._pause_s, _PAUSE_MAX_S)
        return True
