"""Find replies of models that several conversations have, so that a total counts each once."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from foldlog._figures.tables import FigureTables
from foldlog._formats.hash_set import HashSet
from foldlog._formats.summed_calls import HASH_BYTES


class RepeatedReplies:
    """The hashes of the replies in a store, as this process last read them.

    Nothing is read before a conversation is counted whose replies are not compared with the others.
    Memory: some 15 bytes for each reply.
    """

    def __init__(self, tables: FigureTables) -> None:
        self._tables = tables
        self._hashes: dict[int, tuple[tuple[int, int], bytes]] = {}
        """By the key of the conversation: its version and number of events, and the hashes of its
        replies.
        """
        self._seen = HashSet()
        self._repeated = set[bytes]()

    def find(self) -> tuple[dict[int, tuple[int, int]], dict[int, list[int]]]:
        """Return the versions of the conversations to compare, by their keys; and by keys the
        hashes of replies that others have too, while it is not stored what they used. Cost: where
        there are any to compare, the versions of all conversations, and the hashes of those that
        changed; all hashes, for replies that were not repeated before.
        """
        to_compare = self._tables.versions("figures_to_compare")
        if not to_compare:
            return {}, {}
        repeated_now = self._read_changes(to_compare)
        self._repeated |= repeated_now
        among = self._hashes if repeated_now else to_compare
        found = {
            key: self._repeated & _split(self._hashes[key][1])
            for key in among
            if key in self._hashes
        }
        stored = self._tables.stored_replies([key for key, hashes in found.items() if hashes])
        numbers = {
            key: {int.from_bytes(hashed) for hashed in hashes} for key, hashes in found.items()
        }
        to_read = {key: sorted(hashes - stored.get(key, set())) for key, hashes in numbers.items()}
        return to_compare, {key: hashes for key, hashes in to_read.items() if hashes}

    def _read_changes(self, to_compare: Collection[int]) -> set[bytes]:
        """Read the hashes of conversations that changed. Return those of replies that one had
        before, or has too.
        """
        versions = self._tables.versions("figures_with_replies")
        changed = [
            key
            for key, version in versions.items()
            if key in to_compare or key not in self._hashes or self._hashes[key][0] != version
        ]
        repeated = set[bytes]()
        for key, hashes in self._tables.hashes(changed):
            _, before = self._hashes.get(key, ((0, 0), b""))
            repeated.update(self._seen_again(_split(hashes) - _split(before)))
            self._hashes[key] = versions[key], hashes
        return repeated - self._repeated

    def _seen_again(self, hashes: Iterable[bytes]) -> list[bytes]:
        return [hashed for hashed in hashes if not self._seen.add(hashed)]


def _split(hashes: bytes) -> set[bytes]:
    return {hashes[place : place + HASH_BYTES] for place in range(0, len(hashes), HASH_BYTES)}
