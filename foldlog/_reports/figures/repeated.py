"""This module finds replies that are in several conversations, so that a total counts a reply only
once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from foldlog._reports.figures.tables import FigureTables
from foldlog.formats.hash_set import HashSet
from foldlog.formats.summed_calls import HASH_BYTES


class RepeatedReplies:
    """Finds replies that several conversations contain. After a change, a conversation must be
    *compared* with all other conversations. Once all changed conversations have been compared,
    ``find`` reads nothing. Memory: about 15 bytes for each reply.
    """

    def __init__(self, tables: FigureTables) -> None:
        self._tables = tables
        self._hashes: dict[int, tuple[tuple[int, int], bytes]] = {}
        self._seen = HashSet()
        self._repeated = set[bytes]()

    def find(self) -> tuple[dict[int, tuple[int, int]], dict[int, list[int]]]:
        """Return two maps whose keys are the keys of conversations. The first map has the versions
        of conversations that have not been compared yet. The second map has the hashes of repeated
        replies whose usage is not stored.

        Cost: if a conversation has not been compared yet, the method reads the versions of all
        conversations and the hashes of the changed conversations. If a reply is found in a second
        conversation, the method searches the hashes of all conversations in memory.
        """
        to_compare = self._tables.versions("figures_to_compare")
        if not to_compare:
            return {}, {}
        repeated_now = self._read_changes(to_compare)
        self._repeated |= repeated_now
        # Another conversation may already contain a newly repeated reply, so all conversations are
        # searched.
        keys = self._hashes if repeated_now else to_compare
        repeated_hashes = {
            key: self._repeated & _split(self._hashes[key][1])
            for key in keys
            if key in self._hashes
        }
        stored = self._tables.stored_replies(
            [key for key, hashes in repeated_hashes.items() if hashes]
        )
        numbers = {
            key: {int.from_bytes(reply_hash) for reply_hash in hashes}
            for key, hashes in repeated_hashes.items()
        }
        to_read = {key: sorted(hashes - stored.get(key, set())) for key, hashes in numbers.items()}
        return to_compare, {key: hashes for key, hashes in to_read.items() if hashes}

    def _read_changes(self, to_compare: Collection[int]) -> set[bytes]:
        versions = self._tables.versions("figures_with_replies")
        changed = [
            key
            for key, version in versions.items()
            if key in to_compare or key not in self._hashes or self._hashes[key][0] != version
        ]
        repeated = set[bytes]()
        for key, hashes in self._tables.hashes(changed):
            _, earlier_hashes = self._hashes.get(key, ((0, 0), b""))
            repeated.update(self._seen_again(_split(hashes) - _split(earlier_hashes)))
            self._hashes[key] = versions[key], hashes
        return repeated - self._repeated

    def _seen_again(self, hashes: Iterable[bytes]) -> list[bytes]:
        return [reply_hash for reply_hash in hashes if not self._seen.add(reply_hash)]


def _split(hashes: bytes) -> set[bytes]:
    return {hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)}
