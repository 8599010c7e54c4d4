"""Warn of a condensation with a summary while the View still shows an older summary."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from foldlog.eventstore import CondensationAction, CondensationSummary, Recorded, summary_id
from foldlog.projections import View

_log = logging.getLogger("foldlog")
_warned = False
"""Whether this process was warned already."""


def warn_of_older_summaries(conversation: str, recorded: Sequence[Recorded], view: View) -> None:
    """Log a warning, once in a process, where a condensation has a summary and the View still shows an older one."""
    global _warned
    newest = max(one.id for one in recorded if isinstance(one.event, CondensationAction))
    standing = [event.id for event in view if isinstance(event, CondensationSummary)]
    older = [summary for summary in standing if summary != summary_id(newest)]
    if _warned or summary_id(newest) not in standing or not older:
        return
    _warned = True
    _log.warning(
        "conversation %r: condensation %d has a summary, and the View still shows the older summary %d; to "
        "replace it, name its id in forgotten_event_ids (docs/COMING_FROM_OPENHANDS.md)",
        conversation,
        newest,
        older[-1],
    )
