"""Full-text search over all conversations of a store: an index beside the store that follows it."""

from foldlog.search.hits import Hit, SearchRefused
from foldlog.search.index import SearchIndex, erase_from_index

__all__ = ["Hit", "SearchIndex", "SearchRefused", "erase_from_index"]
