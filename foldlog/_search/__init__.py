"""Full-text search over all conversations of a store: an index beside the store that follows it.

index                             the index and its updates; hits: the results
sqlite_tables, postgres_tables    the tables of the index
"""

from foldlog._search.hits import Hit, SearchRefused, hits_document
from foldlog._search.index import SearchIndex, erase_from_index, still_in_index

__all__ = ["Hit", "SearchIndex", "SearchRefused", "erase_from_index", "hits_document", "still_in_index"]
