"""Signed checkpoints in the form that witnesses of transparency logs read: C2SP's *signed note*,
*tlog-checkpoint* and *tlog-cosignature*.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from foldlog.eventstore.errors import InvalidArgument, InvalidOption, install_command

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_DASH: Final = "\N{EM DASH}"
"""The beginning of a line with a signature."""
_ED25519: Final = 1
_COSIGNATURE: Final = 4
"""The kinds of signatures, as the notes of C2SP number them."""
_KEY_BYTES: Final = 32
_ROOT_BYTES: Final = 32


class StoreCheckpoint(NamedTuple):
    """A checkpoint: the origin, the number of leaves, the root, and the lines of signatures."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def __str__(self) -> str:
        return "\n".join((self.text, *self.signatures, ""))


def read_note(text: str) -> StoreCheckpoint:
    """Read a checkpoint. Raises ``InvalidArgument`` if the text is not a checkpoint."""
    body, _, signatures = text.partition("\n\n")
    try:
        origin, size, root = body.split("\n")
        lines = tuple(signatures.splitlines())
        note = StoreCheckpoint(origin, int(size), base64.b64decode(root), lines)
    except ValueError:
        note = StoreCheckpoint("", 0, b"")
    if note.text != f"{body}\n" or note.size < 0 or len(note.root) != _ROOT_BYTES:
        raise InvalidArgument(
            "this is not a checkpoint: it needs lines with the origin, the number of leaves and the"
            " root, then an empty line and the signatures; pass a file that 'foldlog store"
            " checkpoint' printed"
        )
    return note


class VerifierKey(NamedTuple):
    """A public Ed25519 key with its name. ``kind`` is 1 for the key of a store, and 4 for the key
    of a witness.
    """

    name: str
    kind: int
    key: bytes

    @property
    def id(self) -> bytes:
        """The four bytes with which a signature names its key."""
        return sha256(b"%b\n%c%b" % (self.name.encode(), self.kind, self.key)).digest()[:4]

    def signature_line(self, signature: bytes) -> str:
        return f"{_DASH} {self.name} {base64.b64encode(self.id + signature).decode()}"

    def is_signer_of(self, note: StoreCheckpoint) -> bool:
        """Return whether the key has signed the checkpoint. A false signature does not count."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        for line in note.signatures:
            start, _, encoded = line.rpartition(" ")
            try:
                key_id_and_signature = base64.b64decode(encoded, validate=True)
            except ValueError:
                continue
            key_id = key_id_and_signature[:4]
            signature = key_id_and_signature[4:]
            if (start, key_id) != (f"{_DASH} {self.name}", self.id):
                continue
            text = note.text
            if self.kind == _COSIGNATURE:
                text = f"cosignature/v1\ntime {int.from_bytes(signature[:8])}\n{text}"
                signature = signature[8:]
            try:
                Ed25519PublicKey.from_public_bytes(self.key).verify(signature, text.encode())
            except InvalidSignature:
                continue
            return True
        return False


def read_key(text: str, name: str) -> VerifierKey:
    """Read a C2SP verifier key (``NAME+ID+KEY``), or a public or private key in PEM, which gets
    ``name``. Raises ``InvalidArgument`` if the text is not an Ed25519 key, and ``InvalidOption``
    without the package that checks signatures.
    """
    try:
        import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401
        from cryptography.exceptions import UnsupportedAlgorithm
    except ImportError as error:
        raise InvalidOption(
            f"signatures need the package 'cryptography'; {install_command('crypto')}"
        ) from error
    try:
        if "-----BEGIN" in text:
            return VerifierKey(name, _ED25519, _public_bytes(text.encode()))
        named, key_id, encoded = text.strip().split("+", 2)
        kind, *key = base64.b64decode(encoded)
        verifier = VerifierKey(named, kind, bytes(key))
        is_known = kind in (_ED25519, _COSIGNATURE) and len(key) == _KEY_BYTES
        if is_known and verifier.id.hex() == key_id:
            return verifier
    # a key of another kind, or with a password
    except (AttributeError, TypeError, UnsupportedAlgorithm, ValueError):
        pass
    raise InvalidArgument(
        "this is not an Ed25519 key: pass a PEM file without a password, as 'openssl genpkey"
        " -algorithm ed25519' makes one, or a verifier key (NAME+ID+KEY)"
    )


def sign(private_key: bytes, text: str) -> bytes:
    """Sign a text with an Ed25519 key in PEM, which ``read_key`` has read."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = cast("Ed25519PrivateKey", load_pem_private_key(private_key, None))
    return key.sign(text.encode())


def _public_bytes(pem: bytes) -> bytes:
    """Return the public key of a public or private key in PEM. Raises ``ValueError`` or
    ``TypeError`` if it is not an Ed25519 key without a password.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if b"PRIVATE" in pem:
        key = serialization.load_pem_private_key(pem, None).public_key()
    else:
        key = serialization.load_pem_public_key(pem)
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("another kind of key")  # noqa: TRY004 - the caller refuses any wrong key
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
