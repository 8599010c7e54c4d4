"""Summarize many events, in pieces if a model cannot read all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from foldlog.condensers.base import Report
from foldlog.condensers.errors import ModelCallFailed
from foldlog.eventstore import CondensationSummary, Event

_PIECES_MAX = 8
"""The most pieces into which the forgotten events are divided for a model that cannot read them all at once."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of the forgotten events: a text, its metadata for the condensation, and its cost."""

    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()


def summarize_in_pieces(
    summarize: Callable[[Sequence[Event], int | None], Summary],
    events: Sequence[Event],
    limit: int | None,
    pieces: int = _PIECES_MAX,
) -> Summary:
    """Call ``summarize`` with ``events`` and ``limit``. If the events exceed the model's context, summarize the first
    half, then that summary with the second half; and so on with halves of halves, down to ``pieces``.

    Raises ``ModelCallFailed``.
    """
    try:
        return summarize(events, limit)
    except ModelCallFailed as error:
        if error.failure != "context_window" or len(events) < 2 or pieces < 2:
            raise
        reports = error.reports
    half = len(events) // 2
    try:
        first = summarize_in_pieces(summarize, events[:half], limit, pieces // 2)
        reports += first.reports
        goes_before = CondensationSummary(content=first.text)
        second = summarize_in_pieces(summarize, (goes_before, *events[half:]), limit, pieces // 2)
    except ModelCallFailed as error:
        before = (*reports, *error.reports[:-1])
        raise ModelCallFailed(error.model, error.failure, error.problem, error.report, before) from error
    return replace(second, reports=(*reports, *second.reports))
