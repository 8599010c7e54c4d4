"""Print rows of cells as a table. The rows are printed page by page while they are read, so a table
may have any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from foldlog._cli.terminal import UNLIMITED, PrintedLines, cut, print_cells, printable, say

_GAP = "  "
_PAGE = 1_000
"""The number of rows that are measured and printed together."""


class Column(NamedTuple):
    """A column of a table.

    ``least``   the smallest width to which a cell is cut, or None if cells are never cut
    ``marks``   the marks in cells and their meanings, for the line below the table
    ``may_go``  whether a narrow terminal may leave out the column; a line below the table names the
                columns that are left out
    """

    heading: str
    justify: Literal["left", "right"] = "left"
    least: int | None = None
    marks: Mapping[str, str] = MappingProxyType({})
    may_go: bool = False


COST = Column(
    "cost",
    "right",
    marks={"≈": "≈ includes the price of tokens, for calls without a recorded cost"},
)


def print_rows(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], *, tabs: bool = False
) -> None:
    """Print rows with a cell for every column. Without rows, print nothing. With ``tabs``, print
    tabs between the cells if the output is not a terminal, for ``cut`` and ``awk``.

    The first cell is never cut, so an id can always be copied. A first cell that is too wide has a
    line of its own.
    """
    out = PrintedLines()
    rows = iter(rows)
    places: list[int] = []
    widths = [0] * len(columns)
    is_first = True
    notes: dict[str, None] = {}  # the lines below the table, in order and without repetitions
    while page := [[printable(cell, one_line=True) for cell in row] for row in islice(rows, _PAGE)]:
        lines = page
        if is_first:
            lines = [[printable(column.heading, one_line=True) for column in columns], *page]
        if tabs and out.width == UNLIMITED:
            for row in lines:
                print_cells(row)
            is_first = False
            continue
        from rich.cells import cell_len  # A pipe needs no widths.

        sizes = [[*map(cell_len, row)] for row in lines]
        widths = [*map(max, widths, *sizes)]
        places = places or _places(columns, widths, out.width)
        shown = [columns[place] for place in places]
        fitted = _fit(shown, [widths[place] for place in places], out.width)
        notes |= {
            note: None
            for place, column in zip(places, shown, strict=True)
            for mark, note in column.marks.items()
            if any(mark in row[place] for row in page)
        }
        for row, size in zip(lines, sizes, strict=True):
            cells = [(row[place], size[place]) for place in places]
            _print_row(out, shown, fitted, cells, "bold" if is_first else "")
            is_first = False
    left_out = [
        column.heading for place, column in enumerate(columns) if places and place not in places
    ]
    if left_out:
        notes[f"a wider terminal, or --json, also shows: {', '.join(left_out)}"] = None
    if notes:
        say((f"{_GAP}{'; '.join(notes)}", "dim"), wraps=True)


def _places(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Return the indexes of the columns to show. Leave out columns with ``may_go``, from the right,
    until the other columns fit.
    """
    least = [
        width if column.least is None else min(column.least, width)
        for column, width in zip(columns, widths, strict=True)
    ]
    places = list(range(len(columns)))
    for place in reversed(places):
        if columns[place].may_go and sum(least[n] + len(_GAP) for n in places) - len(_GAP) > room:
            places.remove(place)
    return places


def _print_row(
    out: PrintedLines,
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[tuple[str, int]],
    style: str,
) -> None:
    """Print a row. A cell is a text and its width on the screen."""
    padded = [
        _pad(text, size, width, column.justify)
        for (text, size), width, column in zip(cells, widths, columns, strict=True)
    ]
    first, size = cells[0]
    if size > widths[0]:
        out.write(first, is_cut=False)
        padded[0] = " " * widths[0]
    out.write((_GAP.join(padded).rstrip(), style))


def _fit(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Return the widths of the columns. If a row is wider than ``room``, make columns narrower,
    beginning with the first, but no column narrower than its ``least``.
    """
    excess = max(0, sum(widths) + len(_GAP) * (len(widths) - 1) - room)
    fitted = list(widths)
    for place, column in enumerate(columns):
        if column.least is not None:
            fitted[place] = max(min(column.least, widths[place]), widths[place] - excess)
            excess -= widths[place] - fitted[place]
    return fitted


def _pad(text: str, size: int, width: int, justify: str) -> str:
    text = text if size <= width else cut(text, width)  # fill the whole width
    spaces = " " * (width - size)
    return spaces + text if justify == "right" else text + spaces
