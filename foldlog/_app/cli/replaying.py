"""Replay a conversation with the condensers that a command line names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import load_condenser_for
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.printing.comparison import RECORDED
from foldlog._reports.answers.comparison import CurvePointDocument
from foldlog.eventstore import CondensationAction, Event, Store
from foldlog.projections import contains, intervals_kept

# The functions import what most programs need not load when they start.
if TYPE_CHECKING:
    from foldlog._reports.replays import Replay
    from foldlog.condensers import AgentModel, Condenser

_PAGE = 500
"""The number of events between two updates of the progress bar."""
_FEW_EVENTS = 80
"""The maximum number of events in a View, for ``foldlog demo`` and for the small digest of
``foldlog compare``.
"""


def condensers_of(
    configs: Sequence[Path], model: AgentModel | None, limit: int | None
) -> dict[str, Condenser]:
    """Map names to condensers: those of ``configs``, the default condenser, and one that condenses
    nothing. The name of a condenser is the name of its file, or the file's path if another one has
    this name. ``limit`` is the token limit of the model in the log.
    """
    from foldlog.condensers import NoOpCondenser, default_condenser

    default = default_condenser()
    named: dict[str, Condenser] = {"default": default}
    if not configs:
        _, tokens = default.limits(None)
        _, tokens_of_model = default.limits(model)
        if (limit or tokens_of_model) == tokens:
            named[f"max_size = {_FEW_EVENTS}"] = default_condenser(max_size=_FEW_EVENTS)
        else:
            named[f"max_tokens = {tokens}"] = default_condenser(max_tokens=tokens)
    paths = list(dict.fromkeys(configs))
    own = {path: load_condenser_for(path, model) for path in paths}
    names = ["default", *(path.stem for path in paths)]
    has_noop = any(isinstance(condenser, NoOpCondenser) for condenser in own.values())
    if not has_noop:
        names.append("noop")
    for path, condenser in own.items():
        named[path.stem if names.count(path.stem) == 1 else str(path)] = condenser
    if not has_noop:
        named["noop"] = NoOpCondenser()
    return named


def replays_of(
    store: Store,
    conversation: str,
    version: int,
    condensers: Mapping[str, Condenser],
    model: AgentModel | None,
    counter: AgentModel | None,
) -> tuple[dict[str, Replay], list[int]]:
    """Replay the history with all condensers in one pass. Return the replays, and the ids of the
    user's messages.
    """
    from foldlog._reports.figures.overview import counted_in, is_request
    from foldlog._reports.replays import Replaying
    from foldlog.condensers import ESTIMATE

    replaying = {
        name: Replaying(condenser, model, counter or ESTIMATE)
        for name, condenser in condensers.items()
    }
    structural = store.query(conversation, lambda reading: [*reading.structural_events(0, version)])
    counts_event = counted_in(structural, version)
    if _has_condensations(structural, version):
        replaying[RECORDED] = Replaying(None, model, counter or ESTIMATE)
    asks: list[int] = []
    for event in _standing_events(store, conversation, version, structural, "replaying"):
        if is_request(event) and counts_event(event):
            asks.append(event.id)
        for name, replay in replaying.items():
            with _name_condenser(name):
                replay.take(event)
    replays: dict[str, Replay] = {}
    with terminal.working("counting"):
        for name, replay in replaying.items():
            with _name_condenser(name):
                replays[name] = replay.result()
    if RECORDED in replays and not replays[RECORDED].acted:
        del replays[RECORDED]
    return replays, asks


def curve_of(
    store: Store, conversation: str, version: int, counter: AgentModel | None
) -> list[CurvePointDocument]:
    """Replay the history with condensers of several sizes, and return the points of the curve."""
    from foldlog._reports.recall_curve import RECORDED, points, strategies
    from foldlog._reports.replays import Replaying
    from foldlog.condensers import ESTIMATE

    replaying = {
        key: Replaying(condenser, None, counter or ESTIMATE)
        for key, condenser in strategies().items()
    }
    structural = store.query(conversation, lambda reading: [*reading.structural_events(0, version)])
    if not _has_condensations(structural, version):
        del replaying[RECORDED, None]
    for event in _standing_events(store, conversation, version, structural, "drawing"):
        for replay in replaying.values():
            replay.take(event)
    return points({key: replay.result() for key, replay in replaying.items()})


def _has_condensations(structural: Sequence[Event], version: int) -> bool:
    """Return whether a condensation stands that the log recorded."""
    intervals = intervals_kept(structural, version)
    return any(
        isinstance(event, CondensationAction) and contains(intervals, event.id)
        for event in structural
    )


def _standing_events(
    store: Store, conversation: str, version: int, structural: Sequence[Event], what: str
) -> Iterator[Event]:
    """Yield the events that no retraction has taken back, with a progress bar."""
    intervals = intervals_kept(structural, version)
    with terminal.working(what, "events", version) as update:
        for event in store.events(conversation, 0, version):
            if contains(intervals, event.id):
                yield event
            if event.id % _PAGE == 0:
                update(completed=event.id)


@contextmanager
def _name_condenser(name: str) -> Iterator[None]:
    """Stop the comparison if the model of a condenser fails. The error names the condenser."""
    from foldlog.condensers import ModelCallFailed

    try:
        yield
    except ModelCallFailed as error:
        raise Refused(f"{name} cannot be compared: {error}") from error
