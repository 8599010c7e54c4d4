"""Track the events of the View that a later record may name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from foldlog._formats.recent import Recent

_CALLS_MAX = 10_000
"""A tool's message replaces its observation for this many later calls; after that both are shown."""


Kind = Literal["came", "forgotten", "answered", "prompt", "requested", "condensed"]


class Note(NamedTuple):
    """One change: a new event, with the id of its source; ids that were forgotten; a call that got its result."""

    kind: Kind
    value: Any = None
    event_id: int = -1


class StandingIds:
    """The content of the View: source ids with our ids, the system prompt, and whether a condensation is requested.

    ``notes`` are the changes since they were taken last, where the log branches: only then somebody takes them.
    """

    def __init__(
        self,
        earlier: Callable[[], Iterable[Sequence[Note]]] = tuple,
        *,
        requested: bool = False,
        keeps_notes: bool = True,
    ) -> None:
        """Begin with the changes that ``earlier`` returns. It is called when a record first asks for the content of the
        View.
        """
        self.notes: list[Note] = []
        self._keeps_notes = keeps_notes
        self.awaits_condensation = requested
        self._earlier = earlier
        self._later: list[Note] | None = None if earlier is tuple else []
        """Changes that came before the first question."""
        self._forgettable: dict[str, list[int]] = {}
        self._answered: Recent[str, bool] = Recent(_CALLS_MAX)
        self._prompt: int | None = None

    @property
    def forgettable(self) -> dict[str, list[int]]:
        """Our id for each source id. Forgotten ids are removed, so it is as large as a View."""
        self._settle()
        return self._forgettable

    @property
    def prompt(self) -> int | None:
        """The id of the system prompt that is shown."""
        self._settle()
        return self._prompt

    def is_answered(self, call_id: str) -> bool:
        self._settle()
        return self._answered.get(call_id) is not None

    def note(self, kind: Kind, value: Any = None, event_id: int = -1) -> None:
        """Apply a change, and keep it in ``notes``."""
        if self._keeps_notes:
            self.notes.append(Note(kind, value, event_id))
        if kind == "requested" or kind == "condensed":
            self.awaits_condensation = kind == "requested"
        elif self._later is None:
            self._change(kind, value, event_id)
        else:
            self._later.append(Note(kind, value, event_id))

    def forget(self, names: Sequence[str]) -> list[int]:
        """Return the ids of all events with these source ids, and forget them."""
        ids = [event_id for name in dict.fromkeys(names) for event_id in self.forgettable.get(name, ())]
        self.note("forgotten", names)
        return ids

    def take_notes(self) -> list[Note]:
        notes, self.notes = self.notes, []
        return notes

    def begin_with(self, forgettable: dict[str, list[int]], prompt: int | None) -> None:
        """Add the content before the first change."""
        for source_id, ids in self._forgettable.items():
            forgettable.setdefault(source_id, []).extend(ids)
        self._forgettable = forgettable
        self._prompt = prompt if self._prompt is None else self._prompt

    def _settle(self) -> None:
        if self._later is None:
            return
        for notes in (*self._earlier(), self._later):
            for note in notes:
                self._change(*note)
        self._later = None

    def _change(self, kind: Kind, value: Any, event_id: int) -> None:
        match kind:
            case "came":
                self._forgettable.setdefault(value, []).append(event_id)
            case "forgotten":
                for name in value:
                    self._forgettable.pop(name, None)
            case "answered":
                self._answered[value] = True
            case "prompt":
                self._prompt = event_id
