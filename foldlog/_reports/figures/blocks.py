"""Totals of a whole store, from the sums of blocks of conversations.

A block has some hundred conversations with neighbouring keys. The store has, for each block, the
rows with which the statements ``SUMMED`` answer for its conversations. Whoever writes or deletes
figures marks their block, and the next total sums up the marked blocks. Unlike a running total, a
sum that is made again has no rounding errors, and can have a smallest and a largest value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from msgspec.json import decode, encode

from foldlog._reports.figures.stats import FACETS, TOTALS
from foldlog._reports.figures.writing import SAVED
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.recorders.base import Columns, Reader, Transaction
from foldlog.eventstore.recorders.types import as_text

Answers = Mapping[str, Sequence[Columns]]
"""The rows of each statement."""

REASONS: Final = tuple(f"reason {field}" for field in SAVED)
SUMMED: Final[Mapping[str, tuple[str, ...]]] = {
    "figure_sums": (),
    "figure_totals": (json.dumps([*dict.fromkeys((*TOTALS, *FACETS, "errors", *REASONS))]),),
    "figure_spending": (),
    "figures_without_cost": (),
    "figures_by_day": (),
}
"""The statements whose rows for blocks can be added up, and their parameters."""
_CODE: Final = 1
"""The version of the statements. Sums of another version are made again."""
_TOGETHER: Final = 32
"""The number of blocks in one transaction."""


class Blocks:
    """The sums of the blocks of a store. The last sums that were read stay in memory.

    With ``most``, at most this number of blocks is summed up after each ``begin``, and all totals
    until the next ``begin`` are of the same sums. The other blocks have earlier sums, if any.
    ``changes_left`` is how often figures were written that the last total left out.
    """

    def __init__(self, database: Database, most: int | None = None) -> None:
        self._database = database
        self._read: tuple[int, Sequence[dict[str, Answers]]] = -1, ()
        """The state of the store when complete sums were last read, and the sums."""
        self._most = most
        self._held: Sequence[dict[str, Answers]] | None = None
        """With ``most``, the sums that all totals use until the next ``begin``."""
        self.changes_left = 0

    def begin(self) -> None:
        """Let the next total read the sums again."""
        self._held = None

    def rows(
        self, statement: str, *, companions: bool, sub_agents: bool
    ) -> Sequence[Columns] | None:
        """Return the rows of a statement for all blocks, without companions and conversations that
        name a parent if they are not wanted. Return None if the sums are outdated and cannot be
        written now, or if a sum is damaged. Cost: the method sums up the blocks that have
        changed, at most ``most``.
        """
        blocks = self._up_to_date()
        if blocks is None:
            return None
        kinds = [
            _kind(is_companion, is_sub_agent)
            for is_companion in range(companions + 1)
            for is_sub_agent in range(sub_agents + 1)
        ]
        return [
            row
            for block in blocks
            for kind in kinds
            if kind in block
            for row in block[kind][statement]
        ]

    def _up_to_date(self) -> Sequence[dict[str, Answers]] | None:
        """Sum up blocks that have changed, at most ``most``, and return the sums of all blocks.
        Without ``most``, return None if sums are outdated, because another process writes or the
        store cannot be written. Return None if a sum is damaged: rows of figures have the totals.
        """
        if self._held is not None:
            return self._held
        version = self._database.data_version()
        if self._read[0] == version:
            return self._read[1]
        recorder = self._database.recorder
        read = recorder.query(_read_blocks)
        outdated = [block for block, _ in read.outdated][: self._most]
        for start in range(0, len(outdated), _TOGETHER):
            numbers = outdated[start : start + _TOGETHER]
            made = [recorder.query(partial(_sum_of, number)) for number in numbers]
            if not recorder.offer(partial(_write_sums, made)):
                if self._most is None:
                    return None
                break  # another process writes, and no reader waits for it
        if outdated:
            version = self._database.data_version()
            read = recorder.query(_read_blocks)
        if read.outdated and self._most is None:
            return None  # other processes write figures
        self.changes_left = sum(changes for _, changes in read.outdated)
        try:
            sums = _decoded(read.bodies)
        except ValueError:  # ``store verify --views --repair`` deletes the damaged sum
            return None
        if not read.outdated:
            self._read = version, sums
        if self._most is not None:
            self._held = sums
        return sums


class _ReadBlocks(NamedTuple):
    """``bodies`` are the sums of the blocks. ``outdated`` are the blocks without sums or with
    marks, each with the number of its marks.
    """

    bodies: Sequence[bytes]
    outdated: Sequence[tuple[int, int]]


def _decoded(bodies: Sequence[bytes]) -> Sequence[dict[str, Answers]]:
    return [decode(body, type=dict[str, dict[str, Any]]) for body in bodies]


def _kind(is_companion: int, is_sub_agent: int) -> str:
    """Return the key under which a block has the sums of such conversations, such as ``01``."""
    return f"{is_companion}{is_sub_agent}"


def _read_blocks(reader: Reader) -> _ReadBlocks:
    """Return the stored sums of all blocks with figures, and the blocks whose sums are outdated."""
    numbers = [block for (block,) in reader.ask_all("blocks_with_figures")]
    marks: dict[int, int] = dict(reader.ask_all("marked_blocks"))
    bodies = {block: body for block, code, body in reader.ask_all("figure_blocks") if code == _CODE}
    return _ReadBlocks(
        [bodies[block] for block in numbers if block in bodies],
        [
            (block, marks.get(block, 1))
            for block in numbers
            if block in marks or block not in bodies
        ],
    )


def find_wrong_sums(reader: Reader) -> list[int]:
    """Return the blocks whose stored sums differ from the figures of their conversations. A marked
    block may differ. Cost: the sums are made again.
    """
    marked = {block for block, _ in reader.ask_all("marked_blocks")}
    return [
        block
        for block, code, body in reader.ask_all("figure_blocks")
        if code == _CODE and block not in marked and not _has_sums(reader, block, bytes(body))
    ]


def _has_sums(reader: Reader, block: int, body: bytes) -> bool:
    try:
        stored = decode(body)
    except ValueError:  # damaged
        return False
    return bool(stored == decode(encode(dict(_answers(reader, block)))))


class _BlockSum(NamedTuple):
    """The sums of a block at one moment, and the marks that it had then."""

    block: int
    marks: Set[int]
    body: bytes


def _sum_of(block: int, reader: Reader) -> _BlockSum:
    """Return the sum of a block, and the marks that it includes. A writer that has not committed
    yet leaves its mark.
    """
    marks = frozenset(mark for (mark,) in reader.ask_all("marks_of_block", block))
    return _BlockSum(block, marks, encode(dict(_answers(reader, block))))


def _write_sums(made: Iterable[_BlockSum], transaction: Transaction) -> None:
    """Write the sums of blocks. They were made before the transaction, because a block may take
    200 ms, and other writers wait for the transaction.
    """
    for block_sum in made:
        block = block_sum.block
        present = {mark for (mark,) in transaction.ask_all("marks_of_block", block)}
        if not block_sum.marks <= present:
            continue  # another process has written newer sums
        if not block_sum.marks:  # nothing shows whether another process has written sums
            block_sum = _sum_of(block, transaction)
        transaction.write("put_figure_block", block, _CODE, block_sum.body)
        for mark in block_sum.marks:
            transaction.write("forget_mark", block, mark)


def _answers(reader: Reader, block: int) -> Iterator[tuple[str, dict[str, list[list[Any]]]]]:
    """Yield, for each kind of conversations in a block, the rows of each statement."""
    conversations = [
        (_kind(is_companion, is_sub_agent), key)
        for key, is_companion, is_sub_agent in reader.ask_all("figures_in_block", block)
    ]
    for kind, group in groupby(sorted(conversations), itemgetter(0)):
        keys = json.dumps([key for _, key in group])
        yield (
            kind,
            {
                statement: _rows(reader, statement, keys, parameters)
                for statement, parameters in SUMMED.items()
            },
        )


def _rows(reader: Reader, statement: str, keys: str, parameters: Sequence[str]) -> list[list[Any]]:
    """Return the rows of a statement about the conversations ``keys``, which are a JSON list."""
    chosen = ("[]", None, None, 1, keys, "[]")  # all conversations with these keys
    rows = reader.ask_all(statement, *chosen, *parameters)
    # Some databases return texts as bytes.
    return [
        [as_text(column) if isinstance(column, bytes) else column for column in row] for row in rows
    ]
