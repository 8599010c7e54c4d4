"""The default condenser: it works offline, costs nothing and is deterministic."""

from __future__ import annotations

from condensers.strategies.digest import DigestCondenser


def default_condenser(
    *, max_size: int | None = None, keep_first: int = 1, max_tokens: int | None = None
) -> DigestCondenser:
    """Return the digest: by size, by tokens and on request. See ``docs/decisions/0050-defaults-of-condensers.md``."""
    return DigestCondenser(max_size=max_size, keep_first=keep_first, max_tokens=max_tokens)
