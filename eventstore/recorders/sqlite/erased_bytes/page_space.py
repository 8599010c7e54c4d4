"""Find the unused bytes of a b-tree page. Format: https://www.sqlite.org/fileformat2.html.

A page is its header, the places of its cells, a gap, and the cells, between which there may be free blocks. When pages
are split and joined, cells move to another page, and SQLite leaves their bytes in the gap, also with ``secure_delete``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

_INTERIOR: Final = (2, 5)
_LEAF: Final = (10, 13)
_HEADER: Final = Struct(">BHHHB")
_FREE_BLOCK: Final = Struct(">HH")
_FIRST_PAGE_OFFSET: Final = 100
_CONTENT_MAX: Final = 65_536
_ZEROS: Final = bytes(_CONTENT_MAX)


def is_tree_page(page: bytes, number: int) -> bool:
    """Return whether a page belongs to a b-tree. Other pages begin with the number of another page: in a file of fewer
    than 2^25 pages its first byte is 0 or 1, which is not a kind of b-tree page.
    """
    return page[_start(number)] in (*_INTERIOR, *_LEAF)


def unused_parts(page: bytes, number: int) -> Sequence[tuple[int, int]] | None:
    """Return the unused parts of a b-tree page, as (first byte, byte after the last); None if the page contradicts
    itself: then nothing in it may be changed.
    """
    start = _start(number)
    kind, free_block, cells, content, _ = _HEADER.unpack_from(page, start)
    content = content or _CONTENT_MAX
    pointers = start + (12 if kind in _INTERIOR else 8)
    gap = pointers + 2 * cells
    if not gap <= content <= len(page):
        return None
    places = [int.from_bytes(page[at : at + 2], "big") for at in range(pointers, gap, 2)]
    if any(not content <= place <= len(page) - 4 for place in places):
        return None
    parts = [(gap, content)]
    blocks = list(_free_blocks(page, free_block, content))
    if blocks and blocks[-1] == (0, 0):
        return None
    parts += [(first + _FREE_BLOCK.size, end) for first, end in blocks]
    if any(first <= place < end for first, end in blocks for place in places):
        return None
    return [(first, end) for first, end in parts if first < end]


def suspicious(chunk: bytes, page_bytes: int, first_number: int) -> Iterator[int]:
    """Yield the numbers of b-tree pages in ``chunk`` (its first page is ``first_number``) that hold bytes in unused
    parts or contradict themselves. About 1 µs a page.
    """
    unpack = _HEADER.unpack_from
    for offset in range(0, len(chunk) - page_bytes + 1, page_bytes):
        number = first_number + offset // page_bytes
        start = offset + _start(number)
        kind, free_block, cells, content, _ = unpack(chunk, start)
        if kind in _LEAF:
            gap = start + 8 + 2 * cells
        elif kind in _INTERIOR:
            gap = start + 12 + 2 * cells
        else:
            continue
        end = offset + (content or _CONTENT_MAX)
        dirty = gap > end or chunk[gap:end] != _ZEROS[: end - gap]
        if dirty or (free_block and not _are_empty(chunk[offset : offset + page_bytes], free_block)):
            yield number


def _start(number: int) -> int:
    return _FIRST_PAGE_OFFSET if number == 1 else 0


def _are_empty(page: bytes, first: int) -> bool:
    """Return whether the free blocks of a page are consistent and hold zeros."""
    return all(
        begin < end and page[begin + _FREE_BLOCK.size : end] == _ZEROS[: end - begin - _FREE_BLOCK.size]
        for begin, end in _free_blocks(page, first, 0)
    )


def _free_blocks(page: bytes, first: int, content: int) -> Iterator[tuple[int, int]]:
    """Yield each block with its four bytes, as (first byte, byte after the last); (0, 0) if they contradict."""
    end = content
    while first:
        if not end <= first <= len(page) - _FREE_BLOCK.size:
            yield 0, 0
            return
        following, size = _FREE_BLOCK.unpack_from(page, first)
        end = first + size
        if size < _FREE_BLOCK.size or end > len(page):
            yield 0, 0
            return
        yield first, end
        first = following
