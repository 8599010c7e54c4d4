"""What a step has to report, and where it is kept: in the events.

A batch is what one condenser says of one step. It travels as a value: in a ``Step``, in a condensation's metadata under
``CONDENSER_METADATA_KEY``, or on the error that says why there is no condensation. Once appended it stands in that
condensation, or, where the step made none, in an ``Annotation`` of that name.

On top of it is the reference's interface, for condensers that come from there: ``add_metadata`` within ``condense``,
``write_metadata`` or ``metadata_batch`` around it, ``condensed_history`` for both, ``get_condensation_metadata``
to read.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from eventstore.events import Annotation, CondensationAction, Event

if TYPE_CHECKING:
    from projections import View

__all__ = [
    "CONDENSER_METADATA_KEY",
    "Batch",
    "History",
    "annotation",
    "batches_of",
    "get_condensation_metadata",
    "is_standing",
    "open_batch",
    "take_abandoned",
    "take_batch",
    "with_batches",
]

CONDENSER_METADATA_KEY = "condenser_meta"
"""Where batches stand: the key in a condensation's metadata, and the name of the annotations that hold them."""

Batch = Mapping[str, Any]
"""What one condenser has to report of one step, as JSON: model, usage, cost, what was masked, why a reply failed."""


class History(Protocol):
    """What the reference's interface needs of a conversation, such as a ``foldlog`` history."""

    @property
    def view(self) -> View: ...

    def append(self, event: Event) -> Any: ...

    def events(self) -> Iterable[Event]: ...


def is_standing(batch: Batch) -> bool:
    """Whether a batch holds until further notice, such as a mask: what it does is said by its ``rule``, and follows
    from the View. A handler records it once, not at every step.
    """
    return "rule" in batch


def annotation(batches: Iterable[Batch]) -> Annotation:
    """The event that keeps ``batches`` where no condensation does."""
    return Annotation(name=CONDENSER_METADATA_KEY, data=[dict(batch) for batch in batches])


def with_batches(action: CondensationAction, batches: Iterable[Batch]) -> CondensationAction:
    """``action`` with ``batches``, which came before its own, in its metadata."""
    batches = [dict(batch) for batch in batches]
    if not batches:
        return action
    own = action.metadata.get(CONDENSER_METADATA_KEY, [])
    return replace(action, metadata={**action.metadata, CONDENSER_METADATA_KEY: [*batches, *own]})


def batches_of(event: Event) -> list[Any]:
    """The batches that this event keeps, in order; none for most events."""
    match event:
        case CondensationAction(metadata=metadata):
            batches = metadata.get(CONDENSER_METADATA_KEY)
        case Annotation(name=name, data=batches) if name == CONDENSER_METADATA_KEY:
            pass
        case _:
            batches = None
    return batches if isinstance(batches, list) else []


def get_condensation_metadata(history: History) -> list[Any]:
    """Every batch that a history keeps, in order. Cost: one pass over its events."""
    return [batch for event in history.events() for batch in batches_of(event)]


class _OpenBatches(threading.local):
    """The batches being gathered in this thread, by condenser: one condenser may serve several threads at once."""

    def __init__(self) -> None:
        self.of: WeakKeyDictionary[object, dict[str, Any]] = WeakKeyDictionary()


_open = _OpenBatches()


def open_batch(condenser: object) -> dict[str, Any]:
    """What ``condenser`` has gathered in this thread and not yet handed over."""
    return _open.of.setdefault(condenser, {})


def take_batch(condenser: object) -> tuple[Batch, ...]:
    """Hands over what was gathered, if anything, and starts anew."""
    batch = _open.of.pop(condenser, None)
    return (batch,) if batch else ()


def take_abandoned() -> tuple[Batch, ...]:
    """Hands over what condensers gathered in this thread before an error ended their step, and starts anew: it would go
    into the report of another conversation's step.
    """
    batches = tuple(batch for batch in _open.of.values() if batch)
    _open.of.clear()
    return batches
