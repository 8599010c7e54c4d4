"""Read the files of ``foldlog store checkpoint``, and sign checkpoints."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.command_line import option
from foldlog._app.cli.exit_status import Refused
from foldlog.eventstore import InvalidArgument
from foldlog.eventstore.proof.signed_note import (
    StoreCheckpoint,
    VerifierKey,
    read_key,
    read_note,
    sign,
)
from foldlog.eventstore.proof.time_stamp import request_time_stamp, stamped_at

_TIMEOUT_S = 30
"""An authority answers within this time, or not at all."""
_STAMP_BYTES_MAX = 1_000_000
"""More than any time stamp has, so that no answer fills the memory."""

against_option = option(
    "--against", "FILE", "A checkpoint to compare, as 'foldlog store checkpoint' printed it."
)
key_option = option(
    "--key keys",
    "FILE",
    "With --against: a public key (PEM or NAME+ID+KEY) that must have signed the checkpoint.",
    multiple=True,
)
ca_option = option(
    "--ca",
    "FILE",
    "With --against: certificates (PEM) of the authority that signed the time stamp.",
)


def read_checkpoint(path: Path, keys: Sequence[Path] = ()) -> StoreCheckpoint:
    """Return the checkpoint in a file. Raises ``Refused`` if it cannot be read, or if one of the
    keys has not signed it.
    """
    try:
        note = read_note(_read_text(path))
    except InvalidArgument as error:
        raise Refused(f"{path}: {error}") from error
    for key_path in keys:
        key = _read_key(key_path, note.origin)
        if not key.is_signer_of(note):
            raise Refused(
                f"{path} has no true signature of {key.name!r} with the key in {key_path}, so"
                " nothing was compared; ask the keeper of the key for the checkpoint"
            )
    return note


def read_against(
    against: Path | None, keys: Sequence[Path], ca: Path | None
) -> tuple[StoreCheckpoint | None, datetime | None]:
    """Read a checkpoint, and the time of its time stamp if ``ca`` names the authority."""
    if against is not None:
        return read_checkpoint(against, keys), _read_stamp(against, ca)
    if keys or ca:
        raise Refused("--key and --ca check who signed a checkpoint; add --against FILE")
    return None, None


def signed(note: StoreCheckpoint, key: Path, command: str | None) -> StoreCheckpoint:
    """Return a checkpoint with a signature. Sign with the private key in the file ``key``. With a
    ``command``, the command signs, and the file may have only the public key.

    Raises ``Refused`` if there is neither a private key nor a command, or if the signature of the
    command is wrong.
    """
    verifier = _read_key(key, note.origin)
    pem = _read_text(key)
    if command is None and "PRIVATE" not in pem:
        raise Refused(f"{key} has no private key, so add --sign-command")
    if command is None:
        signature = sign(pem.encode(), note.text)
    else:
        ran = subprocess.run(
            command, shell=True, input=note.text.encode(), stdout=subprocess.PIPE, check=False
        )
        signature = ran.stdout
    signed_note = note._replace(signatures=(verifier.signature_line(signature),))
    if not verifier.is_signer_of(signed_note):
        raise Refused(
            f"--sign-command wrote {len(signature)} bytes that are not a signature of the key in"
            f" {key}; it must write the 64 bytes of an Ed25519 signature"
        )
    return signed_note


def stamp_file(path: Path, url: str) -> Path:
    """Ask an authority for a time stamp of a checkpoint, write it beside the checkpoint, and return
    its file. Raises ``Refused`` if this file exists, or if the authority gives no answer.
    """
    stamp_path = _stamp_of(path)
    if stamp_path.exists():
        raise Refused(f"{stamp_path} exists; move it away, because an older time stamp proves more")
    stamp_path.write_bytes(request_time_stamp(_read(path), partial(_post, url)))
    return stamp_path


def _post(url: str, query: bytes) -> bytes:
    """Return the answer of an authority. Raises ``Refused``."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    try:
        request = Request(url, query, {"Content-Type": "application/timestamp-query"})
        with urlopen(request, timeout=_TIMEOUT_S) as response:
            stamp: bytes = response.read(_STAMP_BYTES_MAX)
    except (OSError, ValueError, HTTPException) as error:
        raise Refused(f"the time stamping authority {url} cannot be asked: {error}") from error
    return stamp


def _read_stamp(path: Path, ca: Path | None) -> datetime | None:
    """Return when an authority signed the checkpoint. Without ``ca``, the certificates of the
    authority, return None, and note a time stamp that was not checked.
    """
    stamp_path = _stamp_of(path)
    if ca is not None:
        try:
            return stamped_at(_read(stamp_path), _read(path), _read(ca))
        except InvalidArgument as error:
            raise Refused(f"{stamp_path}: {error}; nothing was compared") from error
    if stamp_path.exists():
        terminal.note(f"the time stamp {stamp_path} was not checked; add --ca FILE")
    return None


def _stamp_of(path: Path) -> Path:
    """Return the file of the time stamp of a checkpoint."""
    return path.with_name(f"{path.name}.tsr")


def _read(path: Path) -> bytes:
    """Return the content of a file. Raises ``Refused``."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from error


def _read_key(path: Path, origin: str) -> VerifierKey:
    """Return the key in a file. Raises ``Refused``."""
    try:
        return read_key(_read_text(path), origin)
    except InvalidArgument as error:
        raise Refused(f"{path}: {error}") from error


def _read_text(path: Path) -> str:
    """Return the content of a file as text. Bytes that are no UTF-8 are replaced. Raises
    ``Refused``.
    """
    return _read(path).decode(errors="replace")
