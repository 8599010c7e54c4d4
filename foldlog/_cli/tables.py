"""Print rows of figures: a table, or a paragraph for each row if the terminal is too narrow."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from foldlog._cli.terminal import has_edge

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_GAP = 2
_LINES = 3
"""The approximate number of lines of a paragraph for the cell that may be cut."""


class Column(NamedTuple):
    """A column. ``least`` is the width to which it may be cut; without it, its cells are shown whole."""

    heading: str
    justify: Literal["left", "right"] = "left"
    least: int | None = None


def print_rows(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> None:
    """Print rows with a cell for each column; one column may be cut. A column of empty cells is left out. Without rows
    nothing is printed.
    """
    from rich.text import Text

    if not rows:
        return
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    by_column = [
        (column, under) for column, under in zip(columns, zip(*cells, strict=True), strict=True) if any(map(len, under))
    ]
    columns = [column for column, _ in by_column]
    whole = [max(len(column.heading), *(cell.cell_len for cell in under)) for column, under in by_column]
    if not has_edge():
        _print_whole(columns, whole, zip(*(under for _, under in by_column), strict=True))
        return
    excess = sum(whole) + _GAP * (len(whole) - 1) - console.width
    widths = [
        width if column.least is None else max(min(column.least, width), width - max(0, excess))
        for column, width in zip(columns, whole, strict=True)
    ]
    shown = list(zip(*(under for _, under in by_column), strict=True))
    if sum(widths) + _GAP * (len(widths) - 1) <= console.width:
        _print_table(console, columns, widths, shown)
    else:
        for row in shown:
            _print_paragraph(console, columns, row)


def _print_whole(columns: Sequence[Column], widths: Sequence[int], rows: Iterable[Sequence[Text]]) -> None:
    """Print a table as wide as it is: nothing is cut unless stdout is a terminal."""
    for row in (tuple(column.heading for column in columns), *(tuple(cell.plain for cell in row) for row in rows)):
        cells = zip(row, columns, widths, strict=True)
        line = (" " * _GAP).join(padded(cell, width, column.justify) for cell, column, width in cells)
        sys.stdout.write(f"{line.rstrip()}\n")


def padded(text: str, width: int, justify: Literal["left", "right"] = "left") -> str:
    """Return ``text`` with spaces up to ``width`` columns of a terminal."""
    from rich.cells import cell_len

    spaces = " " * max(0, width - cell_len(text))
    return spaces + text if justify == "right" else text + spaces


def _print_table(
    console: Console, columns: Sequence[Column], widths: Sequence[int], rows: Iterable[Sequence[Text]]
) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column.heading, justify=column.justify, no_wrap=True, overflow="ellipsis", width=width)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_paragraph(console: Console, columns: Sequence[Column], row: Sequence[Text]) -> None:
    from rich.table import Table
    from rich.text import Text

    headings = max(len(column.heading) for column in columns)
    room = _LINES * max(1, console.width - headings - _GAP)
    grid = Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for column, cell in zip(columns, row, strict=True):
        if cell:
            told = cell.copy()
            if column.least is not None:
                told.truncate(room, overflow="ellipsis")
            grid.add_row(Text(column.heading, style="bold"), told)
    console.print(grid)
    console.print()
