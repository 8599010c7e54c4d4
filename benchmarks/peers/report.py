"""Make the table of a run, and put it into SPEED.md and README.md, only from
docs/internals/peers.json.
"""

from __future__ import annotations

import json
import re
from typing import Any

from benchmarks.frame import describe_provenance
from benchmarks.pages import with_part
from benchmarks.peers.environments import PEERS, ROOT

Runs = dict[str, dict[str, Any]]
"""Maps the length of a history, as text, to its results: the date, the machine and the figures of
each peer.
"""

PUBLISHED = ROOT / "docs" / "internals" / "peers.json"
PAGE = ROOT / "docs" / "internals" / "SPEED.md"
README = ROOT / "README.md"
_ROWS = {
    "**foldlog**": "foldlog",
    "SQLite by hand": "sqlite3 by hand",
    "OpenAI Agents `SQLiteSession`": "OpenAI Agents",
    "LangGraph checkpointer": "LangGraph",
    "Google ADK sessions": "Google ADK",
    "OpenHands' files": "OpenHands",
}


def lengths(runs: Runs) -> list[int]:
    return sorted(map(int, runs))


def open_ms(runs: Runs, peer: str) -> dict[int, float]:
    """Return the peer's time to open for each measured length of the history."""
    figures_by_length = {
        length: runs[str(length)]["peers"].get(peer, {}) for length in lengths(runs)
    }
    return {
        length: figures["open_ms"]
        for length, figures in figures_by_length.items()
        if "open_ms" in figures
    }


def failures(runs: Runs) -> list[tuple[str, int, str]]:
    return [
        (peer.name, length, runs[str(length)]["peers"][peer.name]["failed"])
        for peer in PEERS
        for length in lengths(runs)
        if "failed" in runs[str(length)]["peers"].get(peer.name, {})
    ]


def head(runs: Runs) -> list[str]:
    opened = [
        f"open {length // 1_000}k" if length >= 1_000 else f"open {length}"
        for length in lengths(runs)
    ]
    return ["store", *opened, "turn", "append", "syncs", "bytes", "memory"]


def rows(runs: Runs) -> list[list[str]]:
    """Return a row for each peer that was measured or failed. The times to open are shown for each
    length, and all other figures for the longest history.
    """
    table = []
    for peer in PEERS:
        measured = [
            runs[str(length)]["peers"][peer.name]
            for length in lengths(runs)
            if peer.name in runs[str(length)]["peers"]
        ]
        if not measured:
            continue
        times = [_opened(runs, length, peer.name) for length in lengths(runs)]
        last = next((figures for figures in reversed(measured) if "failed" not in figures), None)
        if last is None:
            table.append([peer.name, *times, *["failed"] * 5])
            continue
        syncs = last["syncs"] if last["syncs"][:1].isdigit() or last["syncs"] == "none" else "?"
        figures = [
            _ms(last["turn_ms"]),
            _ms(last["append_ms"]),
            syncs,
            f"{last['bytes_an_event']:,}",
        ]
        table.append([peer.name, *times, *figures, _mb(last["memory_bytes"])])
    return table


def _opened(runs: Runs, length: int, peer: str) -> str:
    """Return the time to open, "failed", or a dash if this length was not measured."""
    figures = runs[str(length)]["peers"].get(peer)
    if figures is None:
        return "–"
    return "failed" if "failed" in figures else _ms(figures["open_ms"])


def _ms(value: float) -> str:
    """Return milliseconds with about three digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1 else f"{value:.2f}"


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f}" if size >= 10e6 else f"{size / 1e6:.1f}"


def notes(runs: Runs) -> list[str]:
    """Return sentences about the columns, the machine and each failure."""
    longest = lengths(runs)[-1]
    loads = "; ".join(f"{length:,} events: {runs[str(length)]['load']}" for length in lengths(runs))
    return [
        f"The columns from *turn* to *memory* are for {longest:,} events. *Bytes* are for one event."
        " *Memory* is the memory that opening a store needs, in MB.",
        f"{describe_provenance(runs[str(longest)])} Load average while measuring: {loads}.",
        *(f"{peer}, {length:,} events: FAILED: {why}" for peer, length, why in failures(runs)),
    ]


def markdown(runs: Runs) -> str:
    """Return the table and its notes, for docs/internals/SPEED.md."""
    names = head(runs)
    lines = [f"| {' | '.join(names)} |", f"|---|{'---:|' * (len(names) - 1)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows(runs)]
    return "\n".join([*lines, "", *(f"{line}\n" for line in notes(runs))]).rstrip()


def publish(runs: Runs) -> None:
    """Write docs/internals/peers.json, and put its figures into SPEED.md and README.md."""
    text = json.dumps(runs, indent=1, ensure_ascii=False)
    # the rounds of a figure in one line
    text = re.sub(r"\[[^][{}]*\]", lambda match: " ".join(match[0].split()), text)
    PUBLISHED.write_text(f"{text}\n", encoding="utf-8")
    PAGE.write_text(in_page(PAGE.read_text(encoding="utf-8"), runs), encoding="utf-8")
    README.write_text(in_readme(README.read_text(encoding="utf-8"), runs), encoding="utf-8")


def in_page(text: str, runs: Runs) -> str:
    return with_part(text, "python -m benchmarks.peers --publish", markdown(runs))


def in_readme(text: str, runs: Runs) -> str:
    """Put the time to open into the last cell of each row of the README's comparison."""
    first = lengths(runs)[0]
    last = lengths(runs)[-1]
    title = re.compile(r"^(\| \| keeps .*\|)[^|\n]*\|$", re.MULTILINE)
    text, replaced = title.subn(
        lambda row: f"{row[1]} ms to open a history of {first:,}; {last:,} events |", text
    )
    if replaced != 1:
        raise ValueError("README.md has no table that begins with '| | keeps'")
    for row, peer in _ROWS.items():
        cell = f"{_opened(runs, first, peer)}; {_opened(runs, last, peer)}"
        text, replaced = re.subn(
            rf"^(\| {re.escape(row)} \|.*\|)[^|\n]*\|$",
            rf"\g<1> {cell} |",
            text,
            flags=re.MULTILINE,
        )
        if replaced != 1:
            raise ValueError(f"README.md has no row '{row}' in its comparison")
    return text


def read_published() -> Runs:
    runs: Runs = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return runs
