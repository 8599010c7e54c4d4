"""This module finds replies that are in several conversations, so that a total counts a reply only
once.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator

from foldlog._reports.figures.tables import FigureTables
from foldlog.formats.summed_calls import HASH_BYTES

_SOUGHT_MAX = 200_000
"""The number of replies that are looked for at once. Python's set of them takes about 20 MB."""


class RepeatedReplies:
    """Finds replies that several conversations contain. After a change, a conversation must be
    *compared* with all other conversations. Once all changed conversations have been compared,
    ``find`` reads nothing. Memory: about eight bytes for each reply.
    """

    def __init__(self, tables: FigureTables) -> None:
        self._tables = tables
        self._hashes: dict[int, tuple[tuple[int, int], bytes]] = {}
        """Maps the key of a conversation to its version when the hashes were read, and to them."""

    def find(self) -> tuple[dict[int, tuple[int, int]], dict[int, list[int]]]:
        """Return two maps whose keys are the keys of conversations. The first map has the versions
        of conversations that have not been compared yet. The second map has the hashes of repeated
        replies whose usage is not stored.

        Cost: if a conversation has not been compared yet, the method reads the versions of all
        conversations and the hashes of the changed conversations. It looks for the replies of the
        conversations to compare in the hashes of all conversations, which are in memory.
        """
        to_compare = self._tables.versions("figures_to_compare")
        if not to_compare:
            return {}, {}
        self._read_changes(to_compare)
        repeated = dict[int, set[int]]()
        for sought in self._sought(to_compare):
            for key, hashes in self._find_repeated(sought).items():
                repeated.setdefault(key, set()).update(hashes)
        stored = self._tables.stored_replies([*repeated])
        to_read = {key: sorted(hashes - stored.get(key, set())) for key, hashes in repeated.items()}
        return to_compare, {key: hashes for key, hashes in to_read.items() if hashes}

    def _read_changes(self, to_compare: Collection[int]) -> None:
        """Read the hashes of the conversations that have changed since they were read."""
        versions = self._tables.versions("figures_with_replies")
        changed = [
            key
            for key, version in versions.items()
            if key in to_compare or key not in self._hashes or self._hashes[key][0] != version
        ]
        for erased in self._hashes.keys() - versions.keys():
            del self._hashes[erased]
        for key, hashes in self._tables.hashes(changed):
            self._hashes[key] = versions[key], hashes

    def _sought(self, to_compare: Collection[int]) -> Iterator[set[int]]:
        """Yield the replies of the conversations to compare, in sets of about ``_SOUGHT_MAX``."""
        sought = set[int]()
        for key in to_compare:
            if key in self._hashes:
                sought.update(_split(self._hashes[key][1]))
            if len(sought) >= _SOUGHT_MAX:
                yield sought
                sought = set()
        if sought:
            yield sought

    def _find_repeated(self, sought: set[int]) -> dict[int, set[int]]:
        """Return the replies in ``sought`` that several conversations have, by conversation."""
        found_in = dict[int, set[int]]()
        seen = set[int]()
        repeated = set[int]()
        for key, (_, hashes) in self._hashes.items():
            found_here = sought.intersection(_split(hashes))
            if found_here:
                found_in[key] = found_here
                repeated |= seen & found_here
                seen |= found_here
        return {
            key: hashes & repeated
            for key, hashes in found_in.items()
            if not repeated.isdisjoint(hashes)
        }


def _split(hashes: bytes) -> tuple[int, ...]:
    number = len(hashes) // HASH_BYTES  # a damaged column may end within a hash
    return struct.unpack_from(f">{number}Q", hashes)
