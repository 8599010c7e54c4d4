"""What a handler remembers of a conversation, so that it neither says nor tries the same at every step.

A mask hides what its rule says, at every step anew: the rule is recorded once. A model that failed where condensing can
wait is asked again after some more events, and after twice as many each time that it fails again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from condensers.reports import Batch, batches_of, is_standing
from eventstore.events import Event

__all__ = ["Remembered"]

_WAIT, _WAIT_MAX = 10, 160
"""In events: until a model is asked again that failed for the first time, and at most."""


class Remembered:
    """Of one conversation. Used by several threads it may say a thing twice, or ask once too often; no more."""

    def __init__(self) -> None:
        self._rules: set[str] | None = None
        self._wait = _WAIT
        self._ask_again_at = 0

    def may_ask(self, version: int) -> bool:
        """Whether a model may be asked for a condensation that can wait."""
        return version >= self._ask_again_at

    def failed(self, version: int) -> None:
        """A condensation that could wait was paid for or tried at this version, and not made."""
        self._ask_again_at = version + self._wait
        self._wait = min(2 * self._wait, _WAIT_MAX)

    def condensed(self) -> None:
        """A condensation was made: the next failure is a first one."""
        self._wait, self._ask_again_at = _WAIT, 0

    def news(self, batches: Iterable[Batch], recorded_lately: Callable[[], Iterable[Event]]) -> tuple[Batch, ...]:
        """Those of ``batches`` that are to be recorded: all but the standing ones that are. What was recorded before
        this began is looked up in ``recorded_lately``, once, and where there is something standing.
        """
        news = []
        for batch in batches:
            if is_standing(batch):
                if self._rules is None:
                    self._rules = {_rule(old) for event in recorded_lately() for old in batches_of(event)}
                rule = _rule(batch)
                if rule in self._rules:
                    continue
                self._rules.add(rule)
            news.append(batch)
        return tuple(news)


def _rule(batch: Batch) -> str:
    return json.dumps([batch.get("condenser"), batch.get("rule")], sort_keys=True, default=str)
