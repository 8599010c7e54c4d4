"""The versions of the stored form: the number of the schema, and who wrote a store."""

from __future__ import annotations

from typing import Final

from foldlog._base.version import VERSION
from foldlog.eventstore.errors import StoreRefused

MADE_BY: Final = "made_by"
"""The fact of a store that names the version of foldlog that made it. Every store since schema 2
has the fact. The development versions before had other schemas under the numbers 1 to 14, and their
stores lack the fact.
"""

THIS_VERSION: Final = f"foldlog {VERSION}"


def development_store(store: str, number: object) -> StoreRefused:
    """Return the error for a store that a development version wrote."""
    return StoreRefused(
        f"{store} was written by a development version of foldlog from before 0.1.0 (its schema"
        f" {number}), which this version does not read; the store is not damaged: with the version"
        " that wrote it, run 'foldlog export ID --output ID.jsonl' for each conversation, then run"
        " 'foldlog import *.jsonl --db STORE' with this version, for a new STORE",
        kind="schema",
    )


def newer_store(store: str, number: int, newest: int) -> StoreRefused:
    return StoreRefused(
        f"{store} has schema {number}, but this version of foldlog knows schemas up to {newest};"
        " upgrade foldlog to open it",
        kind="schema",
    )
