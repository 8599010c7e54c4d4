"""Record the replies of an SDK while its models write them.

An adapter passes each piece of a reply to ``feed`` before the program gets it. The adapter appends
the complete reply itself, in its own form, inside ``ending``: the same transaction closes the
stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from foldlog import Histories, History
from foldlog.eventstore import ConversationErased, StreamConflict, StreamNotFound
from foldlog.types import StreamedReply


class ReplyStreams:
    """The replies that are being written now, by conversation."""

    def __init__(self, histories: Histories) -> None:
        self._histories = histories
        self._replies: dict[str, StreamedReply] = {}

    def leave(self, conversation: str) -> None:
        """Leave a reply whose model failed, for ``take_up``."""
        self._replies.pop(conversation, None)

    def take_up(self, conversation: str) -> str:
        """Take up the reply that a killed worker left. Return its text, which the adapter appends
        in ``ending`` as a reply that was cut off. Return an empty text if there is none, or if this
        object writes the reply. A reply without a text is dropped.

        Call the method before a run. If another worker still writes the reply, its next piece
        raises ``StreamConflict``.
        """
        if conversation in self._replies:
            return ""
        history = self._histories[conversation]
        unfinished = history.unfinished_reply()
        if unfinished is None:
            return ""
        self._replies[conversation] = StreamedReply(history, None, {}, unfinished)
        if not unfinished.text:
            self.drop(conversation)
        return unfinished.text

    def feed(self, conversation: str, pieces: Iterable[Any]) -> None:
        """Store pieces of the reply: deltas, or what ``StreamedReply.feed`` takes. Raises its
        errors.
        """
        reply = self._replies.get(conversation)
        if reply is None:
            reply = self._histories[conversation].stream_reply()
            reply.begin()
            self._replies[conversation] = reply
        for piece in pieces:
            reply.feed(piece)

    def text(self, conversation: str) -> str:
        """Return the text of the reply that is being written."""
        reply = self._replies.get(conversation)
        return "" if reply is None else reply.text

    def drop(self, conversation: str) -> None:
        """Close the stream of a reply that the adapter does not append. Do nothing if another
        worker has ended it, or the conversation was erased.
        """
        reply = self._replies.pop(conversation, None)
        if reply is not None:
            with suppress(StreamConflict, StreamNotFound, ConversationErased):
                reply.drop()

    @contextmanager
    def ending(self, history: History) -> Iterator[None]:
        """In the block, the append of a reply to ``history`` closes its stream."""
        reply = history._streamed = self._replies.get(history.id)
        try:
            yield
        finally:
            history._streamed = None
            if reply is not None and reply.is_closed:
                del self._replies[history.id]
