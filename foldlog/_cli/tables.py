"""Print rows of cells as a table, as they come: any number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Literal, NamedTuple

from rich.cells import cell_len

from foldlog._cli.terminal import UNLIMITED, PrintedLines, cut, printable, say

_GAP = "  "
_PAGE = 1_000
"""The number of rows that are laid out together: the widest of them gives the width of each column."""


class Column(NamedTuple):
    """A column. On a terminal that is too narrow it may be cut to ``least`` columns; without it, it is shown whole. If
    that is not enough, columns that ``may_go`` are left out, and a line below the table says which. What ``marks`` says
    of a mark stands there too, if a cell of the column has it.
    """

    heading: str
    justify: Literal["left", "right"] = "left"
    least: int | None = None
    marks: Mapping[str, str] = MappingProxyType({})
    may_go: bool = False


TOKENS: Mapping[str, str] = {
    "+": "+ at least: some calls do not tell theirs, may be missing in the source, or have prices that are not applied"
}
_COST = {"≈": "≈ the price of their tokens stands for calls that tell no cost", **TOKENS}
COST = Column("cost", "right", marks=_COST)


def print_rows(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> None:
    """Print rows with a cell for each column. Without rows nothing is printed.

    A row may have one cell more: a text that stands below it on a terminal, elsewhere at its end. The first cell is
    never cut, so that an id can be copied: if it is too wide, it has a line of its own.
    """
    out, rows, places = PrintedLines(), iter(rows), list[int]()
    widths = [0] * len(columns)
    style, told = "bold", dict[str, None]()  # of the headings; what is said below
    while page := [[printable(cell, one_line=True) for cell in row] for row in islice(rows, _PAGE)]:
        shown = [[printable(column.heading, one_line=True) for column in columns], *page] if style else page
        sizes = [[*map(cell_len, row[: len(columns)])] for row in shown]
        widths = [*map(max, widths, *sizes)]
        places = places or _places(columns, widths, out.width)
        its = [columns[n] for n in places]
        fitted = _fitted(its, [widths[n] for n in places], out.width)
        for n, column in zip(places, its, strict=True):
            told |= {said: None for mark, said in column.marks.items() if any(mark in row[n] for row in page)}
        for row, size in zip(shown, sizes, strict=True):
            laid = zip(places, fitted, its, strict=True)
            padded = [_padded(row[n], size[n], width, column.justify) for n, width, column in laid]
            if size[places[0]] > fitted[0]:
                out.write(row[places[0]], is_cut=False)
                padded[0] = " " * fitted[0]
            below = row[-1] if len(row) > len(columns) and row[-1] else ""
            line = _GAP.join(padded)
            if below and out.width == UNLIMITED:
                line, below = f"{line}{_GAP}{below}", ""
            out.write((line.rstrip(), style))
            if below:
                out.write((_GAP + below, "dim"))
            style = ""
    if gone := ", ".join(column.heading for n, column in enumerate(columns) if places and n not in places):
        told[f"a wider terminal, or --json, also shows: {gone}"] = None
    if told:
        say((f"{_GAP}{'; '.join(told)}", "dim"), wraps=True)


def _places(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Return which columns there is room for, at their least widths; those that may go are left out from the right."""
    least = [
        width if column.least is None else min(column.least, width)
        for column, width in zip(columns, widths, strict=True)
    ]
    places = list(range(len(columns)))
    for place in reversed(places):
        if columns[place].may_go and sum(least[n] + len(_GAP) for n in places) - len(_GAP) > room:
            places.remove(place)
    return places


def _fitted(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    """Return the widths, smaller where a column may be cut and the terminal is too narrow."""
    excess = max(0, sum(widths) + len(_GAP) * (len(widths) - 1) - room)
    fitted = list(widths)
    for place, column in enumerate(columns):
        if column.least is not None:
            fitted[place] = max(min(column.least, widths[place]), widths[place] - excess)
            excess -= widths[place] - fitted[place]
    return fitted


def _padded(text: str, size: int, width: int, justify: str) -> str:
    text = text if size <= width else cut(text, width)  # to all of the width
    spaces = " " * (width - size)
    return spaces + text if justify == "right" else text + spaces
