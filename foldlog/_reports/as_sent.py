"""This module shows a View as it is sent to a model: without hidden events, with masks, and with
shortened texts.

If condenser rules hide, mask or shorten events in a prompt, the step records the rules in the log
(``reports.newest_rules``). This module applies the recorded rules to the View of any version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import msgspec

from foldlog._reports.words.reasons import because, requests_before
from foldlog.condensers import stepping
from foldlog.condensers.base import Condenser
from foldlog.condensers.errors import InvalidCondenser
from foldlog.condensers.reports import Report, newest_rules
from foldlog.condensers.strategies import clearing, hiding
from foldlog.condensers.strategies.pipeline import PipelineCondenser
from foldlog.eventstore import CondensationAction, Event, Store
from foldlog.projections import View, Views, Why

_MASKS = (
    hiding.RecentEventsCondenser,
    hiding.ObservationMaskingCondenser,
    hiding.BrowserOutputCondenser,
    clearing.ClearToolUsesCondenser,
    clearing.ClearThinkingCondenser,
)
"""The condensers that a recorded rule may use. A log may come from a stranger, so a recorded rule
must not run other code, call a model or use an API key.
"""


@dataclass(frozen=True)
class Sent:
    """The View as it was sent to a model. ``rules`` describes the recorded rules in words, and is
    empty if the log has no rules.

    If a rule cannot be applied, for example because it belongs to a condenser of your own, ``sent``
    is the whole View, ``rules`` gives the error, and ``is_known`` is False.
    """

    view: View
    sent: View
    rules: str = ""
    is_known: bool = True

    @cached_property
    def _events(self) -> dict[int, Event]:
        return {event.id: event for event in self.sent.events}

    def less(self, event_id: int) -> str:
        """Return how the rules change an event, as ``hidden``, ``masked``, ``shortened`` or
        ``unknown``. If the rules do not change the event, return an empty text.
        """
        if not self.rules:
            return ""
        if not self.is_known:
            return "unknown"
        if (event := self._events.get(event_id)) is None:
            return "hidden"
        by = event.meta.get(hiding.MASKED)
        if by == stepping.LENGTH:
            return "shortened"
        return "masked" if by else ""


def sent(store: Store, conversation: str, view: View) -> Sent:
    """Apply the recorded rules to ``view``. Cost: the function reads the View, and the last events
    before the version of the View.
    """
    at, reports = newest_rules(store, conversation, view.version)
    rules = [report for report in reports if report.get("outcome") != "above size"]
    if not rules:
        return Sent(view, view)
    words = (
        f"{', '.join(str(report.get('condenser')) for report in rules)} (recorded in event {at})"
    )
    try:
        return Sent(view, _apply(rules, view), words)
    except (InvalidCondenser, msgspec.ValidationError) as error:
        return Sent(view, view, f"{words}, which cannot be applied: {error}", is_known=False)


class _Shortening(msgspec.Struct):
    """The recorded rule that shortens the texts of ``events`` to a number of characters."""

    events: list[int]
    characters: Annotated[int, msgspec.Meta(ge=0)]


def _apply(rules: Iterable[Report], view: View) -> View:
    """Return a View as recorded rules change it. Raises ``InvalidCondenser`` or ``ValidationError``
    if a rule cannot be applied.
    """
    masks = list[Condenser]()
    shortening = _Shortening([], 0)
    for report in rules:
        rule = report["rule"]
        name = report.get("condenser")
        if report.get("outcome") == "shortened":
            shortening = msgspec.convert(rule, _Shortening)
            continue
        kind = next((mask for mask in _MASKS if mask.type == name), None)
        if kind is None:
            raise InvalidCondenser(
                f"the recorded rule of condenser {name!r} is not one of foldlog's masks"
            )
        masks.append(msgspec.convert(rule, kind, strict=False))
        if unknown := rule.keys() - vars(masks[-1]).keys():
            raise InvalidCondenser(f"{name} has no {', '.join(sorted(unknown))}")
    result = stepping.step(PipelineCondenser(masks), view, None).result
    shown = result if isinstance(result, View) else view
    return stepping.shorten_texts(shown, shortening.characters, shortening.events)


def why_sent(
    store: Store, views: Views, conversation: str, event_id: int, at: int | None = None
) -> Why:
    """Return ``Views.why``, with why the condensation was due that forgot the event, and with the
    rules that change an event in the prompt.
    """
    why = views.why(conversation, event_id, at)
    if isinstance(why.by, CondensationAction):
        requests = requests_before(store, conversation, why.by.id)
        if due := because(why.by, requests):
            return msgspec.structs.replace(why, reason=f"{why.reason}, {due}")
    if not why.sent:
        return why
    sent_view = sent(store, conversation, views.at(conversation, why.version))
    words = {
        "hidden": "but it is not sent to a model, because it is hidden by",
        "masked": "but a line replaces its content in the prompt, because it is masked by",
        "unknown": "but foldlog cannot say how it was sent to a model, because this depends on",
        "shortened": "but the model is sent only its beginning and end, because it is shortened by",
    }
    less = sent_view.less(event_id)
    if not less:
        return why
    return msgspec.structs.replace(
        why, sent=less != "hidden", reason=f"{why.reason}, {words[less]} {sent_view.rules}"
    )
