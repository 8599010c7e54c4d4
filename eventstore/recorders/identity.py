"""Give a new store its identity."""

from __future__ import annotations

import os
from uuid import UUID


def new_store_uuid() -> str:
    """Return a random UUID, version 4, as text.

    ``uuid.uuid4`` is not called: programs replace it in their tests to get known ids, and opening a store must not use
    up one of theirs.
    """
    return str(UUID(bytes=os.urandom(16), version=4))
