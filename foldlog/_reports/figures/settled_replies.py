"""Replies of a conversation that seldom change again, so that a growth need not decode them.

The state from which figures are counted on has the usage and the tools of the last replies only.
The replies before are *settled*: the state has hashes of them and their sums. Their usage and tools
are in blocks, which are records beside the state. The blocks are read if a later event names one of
their replies, and if another conversation has the replies too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Final

from msgspec import Struct

from foldlog._reports.figures.tools_of_replies import ToolCalls
from foldlog.eventstore import ReadTransaction, Store
from foldlog.formats.hash_set import index_of
from foldlog.formats.summed_calls import HASH_BYTES, Calls, add_up

PROJECTION: Final = "figures_of_replies"
_IN_BLOCK: Final = 256
"""The number of replies in a block."""
_OPEN: Final = 256
"""At least so many of the last replies are not settled."""


class Block(Struct):
    """The usage and the tools of replies, by their ids."""

    replies: dict[str, Calls] = {}
    tools: dict[str, dict[str, ToolCalls]] = {}


class Settled(Struct):
    """What a state has of its settled replies, in the order of the replies.

    ``ids``     eight bytes of the hash of each id
    ``hashes``  the hash of each reply: see ``hash_of_reply``
    ``calls``   the sums of their calls
    """

    ids: bytes = b""
    hashes: bytes = b""
    calls: list[Calls] = []

    @property
    def count(self) -> int:
        return len(self.ids) // HASH_BYTES

    @property
    def blocks(self) -> int:
        """The number of blocks with the settled replies."""
        return self.count // _IN_BLOCK

    def has(self, reply: str) -> bool:
        """Return whether the reply with this id is settled."""
        return bool(self.ids) and index_of(_hash_of_id(reply), self.ids) >= 0

    def with_blocks(self, blocks: Sequence[Block], hashes: Mapping[str, int]) -> Settled:
        """Return the state after the replies of further ``blocks`` are settled. ``hashes`` has the
        hash of each of these replies.
        """
        ids = [_hash_of_id(reply) for block in blocks for reply in block.replies]
        packed = [hashes[reply].to_bytes(HASH_BYTES) for block in blocks for reply in block.replies]
        calls = self.calls
        for block in blocks:
            calls = add_up([*calls, *block.replies.values()])
        return Settled(self.ids + b"".join(ids), self.hashes + b"".join(packed), calls)


class StateIncomplete(Exception):
    """A block of a state is missing or damaged, so the figures must be counted again."""


class EarlierChanged(StateIncomplete):
    """An event changes what was counted of earlier events, so the figures must be counted again:
    a new line of an earlier reply has another prompt than the curve of prompts, or the source takes
    calls back.
    """


def blocks_to_settle(
    replies: Mapping[str, Calls], tools: Mapping[str, dict[str, ToolCalls]]
) -> list[Block]:
    """Return the first of the replies that are not settled, in whole blocks. So what is settled
    depends on the number of replies, and not on the steps in which they were counted.
    """
    remaining = iter(replies.items())
    blocks = list[Block]()
    for _ in range((len(replies) - _OPEN) // _IN_BLOCK):
        usage = dict(islice(remaining, _IN_BLOCK))
        blocks.append(Block(usage, {reply: tools[reply] for reply in usage if reply in tools}))
    return blocks


def read_blocks(store: Store, conversation: str, count: int) -> list[Block]:
    """Read the blocks of a state with ``count`` settled replies. Raises ``StateIncomplete`` if a
    block is missing or damaged.
    """
    return store.query(conversation, lambda reading: blocks_in(reading, count))


def blocks_in(reading: ReadTransaction, count: int) -> list[Block]:
    """Do the same as ``read_blocks``, in a transaction."""
    from foldlog.eventstore.cached_values import value_of  # most growths need no block

    blocks = list[Block]()
    for record in islice(reading.own_records(PROJECTION), count // _IN_BLOCK):
        with suppress(ValueError):  # damaged
            if record.version == len(blocks) + 1:
                block: Block = value_of(record.body, Block)
                blocks.append(block)
    if sum(len(block.replies) for block in blocks) != count:
        raise StateIncomplete
    return blocks


def _hash_of_id(reply: str) -> bytes:
    return blake2b(reply.encode("utf-8", "surrogatepass"), digest_size=HASH_BYTES).digest()
