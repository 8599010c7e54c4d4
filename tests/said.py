"""Messages of a user and of an agent, and the ids and texts of a conversation."""

from collections.abc import Iterable
from typing import Any

from foldlog.eventstore import ANY_VERSION, Event, Message, Recorded, Store


def said(text: str, **fields: Any) -> Message:
    return Message(source="user", content=text, **fields)


def replied(text: Any, **fields: Any) -> Message:
    """Return a message of the agent."""
    return Message(source="agent", content=text, **fields)


def all_said(*texts: Any) -> list[Message]:
    """Return a message of the user for each text."""
    return [said(text) for text in texts]


def by_turns(count: int, text: str = "word") -> list[Message]:
    """Return so many messages, of the user and of the agent by turns: "word 0", "word 1" and so on."""
    return [
        replied(f"{text} {number}") if number % 2 else said(f"{text} {number}")
        for number in range(count)
    ]


def say(store: Store, conversation: str, *content: str, **options: Any) -> tuple[Recorded, ...]:
    """Append a message of the user for each text, at the end of a conversation."""
    return store.append(
        conversation, all_said(*content), **{"expected_version": ANY_VERSION, **options}
    )


def texts(store: Store, conversation: str, start: int = 0) -> list[Any]:
    """Return the content of each event of a conversation; None for an event that has none."""
    return [getattr(event, "content", None) for event in store.events(conversation, start)]


def ids(events: Iterable[Event]) -> list[int]:
    return [event.id for event in events]
