"""Full-text search over all conversations, with the index that ``foldlog search`` keeps beside the store."""

from __future__ import annotations

import threading

from foldlog._documents import HitsDocument
from foldlog._search import SearchIndex, hits_document
from foldlog.eventstore import Store

_LIMIT_MAX = 1_000


class Search:
    """The index, opened when it is asked for the first time. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._index: SearchIndex | None = None

    def found(self, words: str, limit: int) -> HitsDocument:
        """Return the document of a search. Raises ``SearchRefused``, and ``InvalidArgument`` where there is no word."""
        with self._lock:
            if self._index is None:
                self._index = SearchIndex(self._store)
            index = self._index
        hits = index.search(words, limit=min(limit, _LIMIT_MAX))
        return hits_document(words, hits, index.unread)

    def close(self) -> None:
        with self._lock:
            if self._index is not None:
                self._index.close()
                self._index = None
