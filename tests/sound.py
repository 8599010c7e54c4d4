"""Verify a store, by itself or against a checkpoint."""

from foldlog.eventstore import Store
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.signed_note import StoreCheckpoint

LEDGER_OF_A_COPY = (
    "its ledger was not compared: this is a copy of the store of the checkpoint, or its id was"
    " changed"
)


def problems(store: Store, conversation: str | None = None) -> list[str]:
    """Return the findings of all conversations, or of one."""
    return [
        f"{verdict.conversation}: {finding}"
        for verdict in verify(store, conversation)
        for finding in verdict.findings
    ]


def assert_sound(store: Store, conversation: str | None = None) -> None:
    assert problems(store, conversation) == []


def changes(store: Store, checkpoint: StoreCheckpoint) -> dict[str | None, list[str]]:
    """Return the findings since a checkpoint, by conversation. None stands for the store."""
    return {
        verdict.conversation: [str(finding) for finding in verdict.findings]
        for verdict in verify_against(store, checkpoint)
        if verdict.findings
    }
