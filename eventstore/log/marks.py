"""The mark of an encrypted conversation: it cannot be changed without the key. Pure except for its nonces.

An encrypted row proves itself. But no row proves how many rows there are: an attacker with the file could cut off the
end, hide an idempotency key, or put plain rows in the place of encrypted ones. So each transaction that appends to an
encrypted conversation rewrites its mark: an authenticated statement of how the conversation ends, how many idempotency
keys it has, and which of its rows are not encrypted yet (``pending``), because it began as a plain one.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from eventstore.log.compression import NotAsWritten
from eventstore.log.keys import DataKey
from eventstore.recorders.types import Conversation

_HEAD_BYTES: Final = 32
_FORM: Final = 1
_says = struct.Struct(">B3Q")
_ends = struct.Struct(">?5q")
_forked = struct.Struct(">q")


class Mark(NamedTuple):
    """The statements of a mark, besides how the conversation ends.

    ``keys`` is the number of idempotency keys with a proof. Where ``pending_until`` is not 0, a change of the
    encryption is running: rows with ``pending_from <= id < pending_until`` may be plain, and so may records of
    versions up to ``pending_until``; idempotency keys of events before it may have no proof.
    """

    keys: int = 0
    pending_from: int = 0
    pending_until: int = 0

    def expects(self, event_id: int) -> bool:
        """Return whether the row with this id may be plain."""
        return self.pending_from <= event_id < self.pending_until


NOTHING_PENDING: Final = Mark()


def mark_of(key: DataKey, conversation: Conversation, mark: Mark) -> bytes:
    """Return the mark to store for a conversation as a transaction leaves it."""
    says = _says.pack(_FORM, *mark)
    return says + key.encrypt(b"", _place(conversation, says))


def read_mark(key: DataKey, conversation: Conversation) -> Mark:
    """Read the mark of a conversation as it was found. Raises ``NotAsWritten`` if it is of another state."""
    stored = conversation.mark
    if stored is None and not conversation.visible:
        return NOTHING_PENDING  # a staged import has a mark only where there is something to say
    if type(stored) is not bytes or len(stored) <= _says.size or stored[0] != _FORM:
        raise NotAsWritten("the conversation has no mark")
    says = stored[: _says.size]
    try:
        key.decrypt(stored[_says.size :], _place(conversation, says))
    except (NotAsWritten, struct.error, TypeError) as error:
        raise NotAsWritten("the mark of the conversation does not fit") from error
    return Mark(*_says.unpack(says)[1:])


def _place(conversation: Conversation, says: bytes) -> bytes:
    """Return the text that the mark proves. The mark of a staged import covers its rows once it is published."""
    if not conversation.visible:
        return b"mark\0" + says + _ends.pack(False, conversation.created_at, 0, 0, 0, 0) + bytes(_HEAD_BYTES)
    _, _, created_at, _, version, updated_at, head, *_ = conversation
    ends = _ends.pack(True, created_at, version, updated_at or 0, conversation.shown, conversation.structural)
    place = b"mark\0" + says + ends + (head or bytes(_HEAD_BYTES))
    if conversation.parent is None:
        return place
    parent = (conversation.parent_id or "").encode("utf-8", "surrogatepass")
    return b"%bfork\0%b%b" % (place, _forked.pack(conversation.begins), parent)
