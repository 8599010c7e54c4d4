"""Read the files of ``foldlog store checkpoint``, and sign checkpoints."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import click

from foldlog._cli.outcome import Refused
from foldlog.eventstore import InvalidArgument
from foldlog.eventstore.maintenance.signed_note import StoreCheckpoint, read_key, read_note, sign

against_option = click.option(
    "--against",
    metavar="FILE",
    type=Path,
    help="A checkpoint to compare, as 'foldlog store checkpoint' printed it.",
)
key_option = click.option(
    "--key",
    "keys",
    metavar="FILE",
    type=Path,
    multiple=True,
    help="With --against: a public key (PEM or NAME+ID+KEY) that must have signed the checkpoint.",
)


def read_checkpoint(path: Path, keys: Sequence[Path] = ()) -> StoreCheckpoint:
    """Read a checkpoint, and check that each key has signed it."""
    try:
        note = read_note(_read(path))
    except InvalidArgument as error:
        raise Refused(f"{path}: {error}") from error
    for key_path in keys:
        key = read_key(_read(key_path), note.origin)
        if not key.is_signer_of(note):
            raise Refused(
                f"{path} has no true signature of {key.name!r} with the key in {key_path}, so"
                " nothing was compared; ask the keeper of the key for the checkpoint"
            )
    return note


def signed(note: StoreCheckpoint, key: Path, command: str | None) -> StoreCheckpoint:
    """Sign with the private key in a file, or with a command that has the private key of the public
    key in the file.
    """
    pem = _read(key)
    verifier = read_key(pem, note.origin)
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


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, ValueError) as error:
        raise Refused(f"{path} cannot be read: {error}") from error
