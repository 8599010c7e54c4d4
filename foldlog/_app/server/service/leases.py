"""The lease of a conversation: one worker drives it. The token of a lease is a secret of its
holder, who sends it with each write in the header ``Foldlog-Lease``. Any server process beside the
store can serve the holder.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from anyio import sleep
from starlette.requests import ClientDisconnect

from foldlog._app.server.problems import stopping
from foldlog._app.server.service.operations import operation
from foldlog._app.server.service.request import AdmittedRequest, Deferred
from foldlog._history.lease import LeaseBlock
from foldlog._reports.answers.document import Document

_WAIT_MAX_S: Final = 30.0
"""A request waits for a lease at most this time, before a proxy gives it up."""
LeaseSeconds = Annotated[float, msgspec.Meta(ge=0.1, le=600)]
"""A holder that dies keeps others away for this time at most."""


class HeldLease(Document, frozen=True):
    """``token`` is for the holder alone."""

    token: str
    worker: str
    until: str
    ttl_s: float

    @classmethod
    def of_block(cls, block: LeaseBlock) -> HeldLease:
        lease = block.lease
        return cls.of(block, token=block.secret, worker=lease.worker, until=lease.until.isoformat())


@operation("POST", "/conversations/{conversation}/lease")
def take_lease(
    request: AdmittedRequest, *, worker: str, ttl_s: LeaseSeconds = 30.0, wait_s: float = 0.0
) -> HeldLease | Deferred:
    """Take the lease. If another worker has it, the answer is 423 with its name.

    The lease ends ``ttl_s`` seconds after the last renewal. If another worker has the lease, the
    answer waits up to ``wait_s`` seconds, at most 30.
    """
    block = LeaseBlock(request.history, ttl_s, min(wait_s, _WAIT_MAX_S), worker, renews=False)
    run = request.changes.threads.run

    async def wait() -> HeldLease:
        while (pause_s := await run(block.attempt)) is not None:
            if request.changes.is_ending():
                raise stopping()
            if await request.is_disconnected():
                raise ClientDisconnect
            await sleep(pause_s)
        if await request.is_disconnected():
            await run(block.leave)  # the client would not know the token
        else:
            await run(block.close_redacted_calls)
        return HeldLease.of_block(block)

    return Deferred(wait)


@operation("PUT", "/conversations/{conversation}/lease")
def renew_lease(request: AdmittedRequest, *, ttl_s: LeaseSeconds = 30.0) -> HeldLease:
    """Renew the lease of the header ``Foldlog-Lease``. If it has ended, the answer is 412."""
    block = request.lease_block
    block.ttl_s = ttl_s
    block.renew_now()
    return HeldLease.of_block(block)


@operation("DELETE", "/conversations/{conversation}/lease", status=204)
def release_lease(request: AdmittedRequest) -> None:
    """Release the lease of the header ``Foldlog-Lease``."""
    request.lease_block.leave()
