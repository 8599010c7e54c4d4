"""Count how large the product is, and how many of its files one operation enters."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

from foldlog import Message
from foldlog import open as open_histories
from foldlog.eventstore import open_store
from foldlog.projections import Views

__all__ = ["count_layout"]

ROOT = Path(__file__).parents[1]
FLOORS = ("eventstore", "projections", "condensers", "foldlog")


def count_layout() -> dict[str, int]:
    """Count lines of code, modules, and the files of each way."""
    return dict([*_sizes(), *_ways()])


def _sizes() -> Iterator[tuple[str, int]]:
    for floor in FLOORS:
        paths = list((ROOT / floor).rglob("*.py"))
        yield f"modules of {floor}", len(paths)
        yield f"lines of {floor}", sum(len(path.read_text().splitlines()) for path in paths)


def _ways() -> Iterator[tuple[str, int]]:
    """Follow one warm append, one step of an agent, and one View of a store just opened."""
    said = Message(source="user", content="hello")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/way.db"
        with open_histories(url) as histories:
            history = histories["c1"]
            for _ in range(3):
                history.append(said)
                history.step()
            yield from _followed("an append", lambda: history.append(said))
            yield from _followed("a step", history.step)
        with open_store(url) as store:
            yield from _followed("a cold View", lambda: Views(store).current("c1").events)


def _followed(what: str, work: Callable[[], object]) -> Iterator[tuple[str, int]]:
    """Return how many files ``work`` enters, and how often the next function is one of another file.

    A file is entered when one of its functions is called. Imports are warm when the count begins.
    """
    entered: list[str] = []

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := _file(frame.f_code)):
            entered.append(name)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    yield f"files that {what} enters", len(set(entered))
    yield f"changes of file in {what}", sum(one != other for one, other in pairwise(entered))


def _file(code: CodeType) -> str:
    path = Path(code.co_filename)
    if not path.is_relative_to(ROOT):
        return ""
    name = str(path.relative_to(ROOT))
    return name if name.split("/")[0] in FLOORS else ""
