"""The title of an imported conversation that its user chose."""

from __future__ import annotations

from functools import partial

import msgspec

from foldlog.eventstore import Store
from foldlog.eventstore.recorders.base import Transaction
from foldlog.eventstore.sources.reading import about
from foldlog.eventstore.sources.tables import TITLED, Sources, SourcesToWrite, query_sources


def note_chosen_title(store: Store, key: int) -> None:
    """Note that a user chose the title of the conversation with this ``key``, so that no later
    import of its source sets another title. The chosen title may be the one that an import set.
    """
    source = query_sources(store.database, Sources.find_by_key, key)
    if source is not None and TITLED in about(source):
        store.database.recorder.transact(partial(_forget_set_title, store, key))


def _forget_set_title(store: Store, key: int, transaction: Transaction) -> None:
    sources = SourcesToWrite(store.database, transaction)
    source = sources.settle(key)
    if source is not None:
        facts = about(source)
        facts.pop(TITLED, None)
        sources.put(source._replace(about=msgspec.json.encode(facts)))
