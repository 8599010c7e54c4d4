"""Print rows of cells as a table. The rows are printed page by page while they are read, so a table
may have any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from foldlog._app.cli.terminal import (
    UNLIMITED,
    PrintedLines,
    count_columns,
    cut,
    escape_cells,
    print_cells,
    say_wrapped,
)

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
    heading = [[column.heading for column in columns]]
    notes: dict[str, None] = {}  # the lines below the table, in order and without repetitions
    while page := list(islice(rows, _PAGE)):
        lines = escape_cells([*heading, *page])
        if tabs and out.width == UNLIMITED:
            print_cells(lines)
            heading = []
            continue
        # Each column is measured and filled as a whole, since a list may have many rows.
        cells = list(zip(*lines, strict=True))
        sizes = [list(map(count_columns, column)) for column in cells]
        widths = [*map(max, widths, map(max, sizes))]
        places = places or _places(columns, widths, out.width)
        shown = [columns[place] for place in places]
        fitted = _fit(shown, [widths[place] for place in places], out.width)
        notes |= {
            note: None
            for place, column in zip(places, shown, strict=True)
            for mark, note in column.marks.items()
            if any(mark in cell for cell in cells[place][len(heading) :])
        }
        _print_page(
            out,
            shown,
            fitted,
            [cells[place] for place in places],
            [sizes[place] for place in places],
            has_heading=bool(heading),
        )
        heading = []
    left_out = [
        column.heading for place, column in enumerate(columns) if places and place not in places
    ]
    if left_out:
        notes[f"a wider terminal, or --json, also shows: {', '.join(left_out)}"] = None
    if notes:
        say_wrapped((f"{_GAP}{'; '.join(notes)}", "dim"))


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


def _print_page(
    out: PrintedLines,
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[Sequence[str]],
    sizes: Sequence[Sequence[int]],
    *,
    has_heading: bool,
) -> None:
    """Print rows in one write. ``cells`` and ``sizes`` have a sequence for each column: the texts,
    and their widths on the screen.
    """
    width = widths[0]
    wide = [cell if size > width else "" for cell, size in zip(cells[0], sizes[0], strict=True)]
    first = [" " * width if lead else cell for lead, cell in zip(wide, cells[0], strict=True)]
    filled = map(_fill, columns, [first, *cells[1:]], sizes, widths)
    lines = zip(wide, map(_GAP.join, zip(*filled, strict=True)), strict=True)
    if has_heading:
        lead, line = next(lines)
        if lead:
            out.write(lead, is_cut=False)
        out.write((line.rstrip(), "bold"))
    printed = []
    for lead, line in lines:
        if lead:
            printed.append([lead])
        printed.append([cut(line.rstrip(), out.width)])
    print_cells(printed)


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


def _fill(column: Column, cells: Sequence[str], sizes: Sequence[int], width: int) -> list[str]:
    """Cut or fill the cells of a column to its width."""
    if max(sizes) > width:
        cells = [cut(cell, width) for cell in cells]
    if column.justify == "right":
        return [" " * (width - size) + cell for cell, size in zip(cells, sizes, strict=True)]
    return [cell + " " * (width - size) for cell, size in zip(cells, sizes, strict=True)]
