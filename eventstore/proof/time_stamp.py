"""Time stamps of checkpoints: an authority signs that a file existed at a time (RFC 3161)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from types import ModuleType

from foldlog.eventstore.errors import InvalidArgument, InvalidOption, install_command


def request_time_stamp(data: bytes, send: Callable[[bytes], bytes]) -> bytes:
    """Return the authority's response about ``data``. ``send`` sends a request to the authority and
    returns its response. The authority sees a hash of ``data`` alone.

    Raises ``InvalidArgument`` if the response is not a time stamp of ``data``, and what ``send``
    raises. ``stamped_at`` checks who signed the response.
    """
    client = _client()
    request = client.TimestampRequestBuilder(data, client.HashAlgorithm.SHA256).build()
    response = send(request.as_bytes())
    try:
        stamp = client.decode_timestamp_response(response)
        is_granted = stamp.status == client.PKIStatus.GRANTED
        answered = None
        if is_granted:
            answered = stamp.tst_info.nonce, stamp.tst_info.message_imprint.message
    except ValueError as error:
        raise InvalidArgument(
            f"the response of {len(response):,} bytes is not a time stamp (RFC 3161): {error};"
            " check the address of the time stamping authority"
        ) from error
    if not is_granted:
        reason = "; ".join(stamp.status_string) or f"status {stamp.status}"
        raise InvalidArgument(f"the time stamping authority refused the request: {reason}")
    if answered != (request.nonce, sha256(data).digest()):
        raise InvalidArgument("the time stamping authority answered another request; ask again")
    return response


def stamped_at(stamp: bytes, data: bytes, certificates: bytes) -> datetime:
    """Return the time at which an authority signed ``data``. ``stamp`` is the authority's response,
    and ``certificates`` has the root certificates, and intermediate ones that the response lacks,
    in PEM.

    Raises ``InvalidArgument`` if no such authority signed ``data``.
    """
    client = _client()
    from cryptography.x509 import load_pem_x509_certificates

    try:
        roots = load_pem_x509_certificates(certificates)
        response = client.decode_timestamp_response(stamp)
        client.VerifierBuilder(roots=roots).build().verify_message(response, data)
        time: datetime = response.tst_info.gen_time
    except (ValueError, client.VerificationError) as error:
        raise InvalidArgument(
            f"this is not a time stamp of the file by an authority with these certificates: {error}"
        ) from error
    return time


def _client() -> ModuleType:
    """Return the package for time stamps. Raises ``InvalidOption`` if it is missing."""
    try:
        import rfc3161_client
    except ImportError as error:
        raise InvalidOption(
            f"time stamps need the package 'rfc3161-client'; {install_command('anchor')}"
        ) from error
    return rfc3161_client
