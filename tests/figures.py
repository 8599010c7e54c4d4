"""The figures of a store as its lists and statistics read them, for every test that compares them."""

from foldlog._reports.figures.documents import (
    collect_stats as collect_stats,
    document_of as document_of,
)
from foldlog._reports.figures.of_store import FiguresOfStore as FiguresOfStore
from foldlog._reports.figures.prices import Price as Price, Prices as Prices
from foldlog._reports.figures.spending import spent_by as spent_by
from foldlog._reports.figures.tables import (
    SORTS as SORTS,
    FigureTables as FigureTables,
    StoredFigures as StoredFigures,
    Where as Where,
)
