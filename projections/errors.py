"""The errors of Views: the conversation does not have the requested version or event."""

from __future__ import annotations

from foldlog.eventstore import EventStoreError


class NoSuchVersion(EventStoreError, ValueError):
    """The conversation never had this version. Use a version from 0 to the conversation's present
    version.
    """

    def __init__(self, conversation: str, version: int, present: int) -> None:
        super().__init__(
            f"conversation {conversation!r} has no version {version}; it is at version {present}"
            f" (use 0 to {present})"
        )
        self.conversation = conversation
        self.version = version
        self.present = present


class NoSuchEvent(EventStoreError, ValueError):
    """The conversation has no event and no summary with this id. ``foldlog log`` prints the ids of
    events.
    """

    def __init__(self, conversation: str, event_id: int, version: int) -> None:
        if version:
            known_ids = (
                f"its events are 0 to {version - 1}; the summary of condensation c has id -(c+2)"
            )
        else:
            known_ids = "it is empty"
        super().__init__(f"conversation {conversation!r} has no event {event_id}: {known_ids}")
        self.conversation = conversation
        self.event_id = event_id
        self.version = version
