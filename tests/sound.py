"""Verify a store."""

from foldlog.eventstore import Store
from foldlog.eventstore.maintenance.verify import verify


def problems(store: Store, conversation: str | None = None) -> list[str]:
    """Return the findings of all conversations, or of one."""
    return [
        f"{verdict.conversation}: {finding}"
        for verdict in verify(store, conversation)
        for finding in verdict.findings
    ]


def assert_sound(store: Store, conversation: str | None = None) -> None:
    assert problems(store, conversation) == []
