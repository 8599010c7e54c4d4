"""Print rows of cells as a table, as they come: any number of rows."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from foldlog._cli.terminal import UNLIMITED, PrintedLines, columns_of, console, cut, has_edge

_GAP = "  "
_PAGE = 1_000
"""The number of rows that are laid out together: the widest of them gives the width of each column."""


class Column(NamedTuple):
    """A column. On a terminal that is too narrow it may be cut to ``least`` columns; without it, it is shown whole.
    What ``marks`` says of a mark stands below the table, if a cell of the column has it.
    """

    heading: str
    justify: Literal["left", "right"] = "left"
    least: int | None = None
    marks: Mapping[str, str] = MappingProxyType({})


_MARKS = {
    "≈": "≈ the price of their tokens stands for calls that tell no cost",
    "+": "+ some calls tell neither cost nor tokens",
    "(of": "(of N) the cost of N of the calls is known",
}
COST = Column("cost", "right", marks=_MARKS)


def print_rows(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows with a cell for each column. Without rows nothing is printed.

    A row may have one cell more: a text that stands below it on a terminal, elsewhere at its end. The first cell is
    never cut, so that an id can be copied: if it is too wide, it has a line of its own.
    """
    out, rows = PrintedLines(), iter(rows)
    widths = [len(column.heading) for column in columns]
    style, told = "bold", dict[str, None]()  # of the headings; what is said of marks
    while page := list(islice(rows, _PAGE)):
        widths = [max(width, *(columns_of(row[n]) for row in page)) for n, width in enumerate(widths)]
        shown = _fitted(columns, widths, out.width)
        told |= {
            said: None
            for n, column in enumerate(columns)
            for mark, said in column.marks.items()
            if any(mark in row[n] for row in page)
        }
        for row in ([column.heading for column in columns], *page) if style else page:
            first, *cells = row[: len(columns)]
            if columns_of(first) > shown[0]:
                sys.stdout.write(f"{first}\n")
                first = ""
            padded = map(_padded, (first, *cells), shown, (column.justify for column in columns))
            below = row[-1] if len(row) > len(columns) and row[-1] else ""
            line = _GAP.join(padded).rstrip()
            if below and out.width == UNLIMITED:
                line, below = f"{line}{_GAP}{below}", ""
            out.write((line, style))
            if below:
                out.write((_GAP + below, "dim"))
            style = ""
    if told:
        console().print(f"{_GAP}{'; '.join(told)}", style="dim", soft_wrap=not has_edge())


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Return the widths, smaller where a column may be cut and the terminal is too narrow."""
    excess = max(0, sum(widths) + len(_GAP) * (len(widths) - 1) - room)
    fitted = list(widths)
    for place, column in enumerate(columns):
        if column.least is not None:
            fitted[place] = max(min(column.least, widths[place]), widths[place] - excess)
            excess -= widths[place] - fitted[place]
    return fitted


def _padded(text: str, width: int, justify: str) -> str:
    text = cut(text, width)
    spaces = " " * (width - columns_of(text))
    return spaces + text if justify == "right" else text + spaces
