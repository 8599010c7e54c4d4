"""What the stream protocol notes in a stream, and who may write a reply."""

from __future__ import annotations

from typing import Final

import msgspec

from foldlog._app.server.problems import Refusal
from foldlog._history.history import History

SECOND: Final = 1_000_000
"""In microseconds, as the times in the store are."""


class StreamState(msgspec.Struct, omit_defaults=True):
    """What the protocol needs to know of a stream, as JSON in its column ``state``. ``dies`` is the
    time in microseconds after which the stream is deleted. ``began_by`` is the producer that began
    it, if the request named one. ``is_of_program`` says that a Python program began it. This field,
    ``view`` and ``wrote_at`` are written by the library (``foldlog._history.streamed_reply``,
    ``foldlog.eventstore.log.streams``).
    """

    view: int | None = None
    wrote_at: int | None = None
    is_of_program: bool = False
    began_by: str | None = None
    ttl: int | None = None
    expires: str | None = None
    dies: int | None = None
    seq: str | None = None
    closed_by: tuple[str, int, int] | None = None
    producers: dict[str, tuple[int, int]] = {}

    def touched(self, now: int) -> StreamState:
        """Return the state after a read or a write, which begins the time to live again."""
        if self.ttl is None:
            return self
        return msgspec.structs.replace(self, dies=now + self.ttl * SECOND)

    def is_of_writer(self, writer: str | None) -> bool:
        """Return whether the producer ``writer`` began the stream, or a request without a producer
        if it is None. A Python program is no producer, so only the lease goes on with its reply.
        """
        return not self.is_of_program and self.began_by == writer


read_state: Final = msgspec.json.Decoder(StreamState).decode


def may_write(history: History, state: StreamState, writer: str | None) -> bool:
    """Return whether a request writes, ends or deletes an open reply: that of its writer, or one
    with the lease.
    """
    return history._lease_block is not None or state.is_of_writer(writer)


def not_its_writer(state: StreamState) -> Refusal:
    """Return the refusal of a request that may not write the reply. It names no writer, because
    whoever sends the name is taken for the writer.
    """
    if state.is_of_program or state.began_by is not None:
        problem = "only the program that began this reply writes, ends or deletes it"
    else:
        problem = "a writer without a Producer-Id writes this reply; send none"
    return Refusal(409, f"{problem}, or take the lease to go on with the reply")
