"""The reference's metadata interface, for condensers and runtimes that come from there.

A condenser calls ``add_metadata`` within ``condense``. Its runtime calls ``write_metadata``, or ``metadata_batch``
around ``condense``, or ``condensed_history`` for both, and reads with ``get_condensation_metadata``. No step of this
package passes through this file: ``condensers/reports.py`` collects what was added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from condensers.errors import NoCondensationAvailable
from condensers.reports import annotation, open_report, reports_of, take_report
from eventstore.events import Event

if TYPE_CHECKING:
    from condensers.base import AgentModel, Condensation, Step
    from projections import View


class WithView(Protocol):
    """The methods that the reference's interface needs of a conversation, such as ``foldlog.History``."""

    @property
    def view(self) -> View: ...

    def append(self, event: Event) -> Any: ...

    def events(self) -> Iterable[Event]: ...


class MetadataInterface(ABC):
    """The methods that every ``Condenser`` has for users of the reference's interface."""

    @abstractmethod
    def step(self, view: View, agent_llm: AgentModel | None = None) -> Step: ...

    def add_metadata(self, key: str, value: Any) -> None:
        """Set ``key`` in this condenser's open report. ``value`` is JSON."""
        open_report(self)[key] = value

    def write_metadata(self, history: WithView) -> None:
        """Append the open report to ``history`` unless it is empty, and start a new one."""
        if reports := take_report(self):
            history.append(annotation(reports))

    @contextmanager
    def metadata_batch(self, history: WithView) -> Iterator[None]:
        """Write the report when the block ends, even by an error."""
        try:
            yield
        finally:
            self.write_metadata(history)

    def condensed_history(self, history: WithView, agent_llm: AgentModel | None = None) -> View | Condensation:
        """Condense the history's View. Reports without a condensation are appended; a condensation is not."""
        with self.metadata_batch(history):
            try:
                result, reports = self.step(history.view, agent_llm)
            except NoCondensationAvailable as error:
                if error.reports:
                    history.append(annotation(error.reports))
                raise
            if reports:
                history.append(annotation(reports))
            return result


def get_condensation_metadata(history: WithView) -> list[Any]:
    """Return every report in a history, in order. Cost: one pass over its events."""
    return [report for event in history.events() for report in reports_of(event)]
