"""``foldlog store checkpoint``: one root over all conversations, to keep in another place."""

from __future__ import annotations

from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.checkpoints import read_checkpoint, signed, stamp_file
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import option, store_options
from foldlog._app.cli.stores import open_existing
from foldlog._reports.answers.store import CheckpointDocument
from foldlog.eventstore.proof.checkpoint import make_checkpoint
from foldlog.eventstore.proof.proofs import prove_consistency, prove_event


@option(
    "--key",
    "FILE",
    "Sign with this Ed25519 key (PEM). With --sign-command, FILE has the public key.",
)
@option(
    "--sign-command",
    "COMMAND",
    "A command that reads the text of the checkpoint, and writes the 64 bytes of a signature.",
)
@option(
    "--prove",
    "ID EVENT",
    "Print a JSON proof that the checkpoint covers an event.",
    type=(str, int),
)
@option(
    "--since",
    "FILE",
    "Print a JSON proof that the checkpoint continues the earlier checkpoint in FILE.",
)
@option(
    "--time-stamp",
    "URL",
    "With --in: ask this RFC 3161 authority to sign FILE, and write the answer to FILE.tsr.",
)
@option("--in stored", "FILE", "Use the checkpoint in FILE, instead of a new one.")
@store_options
def run(
    key: Path | None,
    sign_command: str | None,
    prove: tuple[str, int] | None,
    since: Path | None,
    time_stamp: str | None,
    stored: Path | None,
    db: str,
) -> None:
    """Make a checkpoint: one hash over the heads of all conversations and the receipts of erasures.

    Keep the printed text where the writers of the store cannot change it. 'foldlog store verify
    --against FILE' later names every conversation that was changed, shortened, removed or replaced
    since. Erasures, redactions, copies and backups do not change a checkpoint.

    Example: foldlog store checkpoint --key key.pem
    """
    if sign_command is not None and key is None:
        raise Refused("--sign-command signs with a key; add --key FILE with its public key")
    chosen = [
        name
        for name, value in (("--prove", prove), ("--since", since), ("--time-stamp", time_stamp))
        if value is not None
    ]
    if len(chosen) > 1 or (time_stamp is not None and key is not None):
        first, second = [*chosen, "--key"][:2]
        raise Refused(f"{first} prints or writes one thing alone; leave out {second}")
    if time_stamp is not None:
        if stored is None:
            raise Refused("--time-stamp signs the file of a checkpoint; add --in FILE")
        terminal.note(f"the time stamp is in {stamp_file(stored, time_stamp)}")
        return
    with open_existing(db) as store:
        note = make_checkpoint(store) if stored is None else read_checkpoint(stored)
        if key is not None:
            note = signed(note, key, sign_command)
        if prove is not None:
            terminal.emit(prove_event(store, note, *prove), exact=True)
        elif since is not None:
            from foldlog._reports.records.compared_imports import verify_with_records  # all formats

            earlier = read_checkpoint(since)
            terminal.emit(prove_consistency(store, earlier, note, verify=verify_with_records))
        else:
            document = CheckpointDocument(
                origin=note.origin, leaves=note.size, root=note.root.hex(), note=str(note)
            )
            terminal.answer(document, str(note).splitlines())
