"""Recovery of rows from a damaged file, for ``foldlog salvage``.

pages     the pages of a file and its log, parsed without SQLite
carving   the rows on those pages, back at their places (docs/decisions/0063-our-own-reader-of-damaged-pages.md)
"""
