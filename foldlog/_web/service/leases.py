"""The lease of a conversation: one worker drives it. The token of a lease is a secret of its
holder, who sends it with each write in the header ``Foldlog-Lease``. Any server process beside the
store can serve the holder.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from anyio import sleep, to_thread

from foldlog._history.lease import LeaseBlock
from foldlog._web.service.admitted import AdmittedRequest, Later
from foldlog._web.service.operations import LEASED, OperationAnswer, OperationRequest, operation
from foldlog._web.service.tokens import Scope

_WAIT_MAX_S: Final = 30.0
LeaseSeconds = Annotated[float, msgspec.Meta(ge=0.1, le=600)]
"""A holder that dies keeps others away for this time at most."""


class LeaseBody(OperationRequest):
    """The lease ends ``ttl_s`` seconds after the last renewal. If another worker has the lease, the
    answer waits up to ``wait_s`` seconds, at most 30.
    """

    worker: str
    ttl_s: LeaseSeconds = 30.0
    wait_s: float = 0.0


class HeldLease(OperationAnswer):
    """``token`` is for the holder alone."""

    token: str
    worker: str
    until: str
    ttl_s: float


class RenewBody(OperationRequest):
    ttl_s: LeaseSeconds = 30.0


@operation("POST", "/conversations/{conversation}/lease", Scope.APPEND, status=201)
def take_lease(request: AdmittedRequest, body: LeaseBody) -> HeldLease | Later:
    """Take the lease. If another worker has it, the answer is 423 with its name."""
    block = LeaseBlock(
        request.history, body.ttl_s, min(body.wait_s, _WAIT_MAX_S), body.worker, renews=False
    )

    async def wait() -> HeldLease:
        while (pause_s := await to_thread.run_sync(block.attempt)) is not None:
            await sleep(pause_s)
        if await request.is_disconnected():
            await to_thread.run_sync(block.leave)  # the client would not know the token
        else:
            await to_thread.run_sync(block.close_redacted_calls)
        return _document(block)

    return Later(wait)


@operation("PUT", "/conversations/{conversation}/lease", Scope.APPEND, headers=LEASED)
def renew_lease(request: AdmittedRequest, body: RenewBody) -> HeldLease:
    """Renew the lease of the header ``Foldlog-Lease``. If it has ended, the answer is 412."""
    block = _block(request)
    block.ttl_s = body.ttl_s
    block.renew_now()
    return _document(block)


@operation(
    "DELETE", "/conversations/{conversation}/lease", Scope.APPEND, status=204, headers=LEASED
)
def release_lease(request: AdmittedRequest) -> None:
    """Release the lease of the header ``Foldlog-Lease``."""
    _block(request).leave()


def _block(request: AdmittedRequest) -> LeaseBlock:
    _ = request.lease  # without the header, there is no lease to speak of
    block = request.history._lease_block
    assert block is not None
    return block


def _document(block: LeaseBlock) -> HeldLease:
    return HeldLease(
        token=block.secret,
        worker=block.lease.worker,
        until=block.lease.until.isoformat(),
        ttl_s=block.ttl_s,
    )
