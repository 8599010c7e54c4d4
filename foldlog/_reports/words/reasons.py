"""Describe why a condensation forgot events. Every command takes its words for these reasons from
this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foldlog._base.json_types import JsonMap
from foldlog._reports.words.safe_text import printable
from foldlog.eventstore import CondensationAction, CondensationRequest, Store

_ASKED = "asked for"
WORDS = {
    "request": _ASKED,
    _ASKED: _ASKED,
    "tokens": "too many tokens",
    "events": "too many events",
    "cost": "it saves more than it costs",
}
"""Maps a reason in a condensation's metadata to words for people. The metadata may contain several
reasons, such as ``request, tokens``.
"""


def because(
    condensation: CondensationAction,
    requests: Sequence[CondensationRequest] = (),
    *,
    brief: bool = False,
) -> str:
    """Return why a condensation was made, such as ``View of 90 events exceeded 80, asked for (the
    prompt was too long)``. Without figures, the text is for example ``too many events``. The text
    is safe to print. The text is empty if neither a reason nor a failure is recorded.

    ``requests`` are the requests that the condensation answers: see ``requests_before``. With
    ``brief``, the text has no figures and no words of a request, so equal reasons have equal texts.
    """
    # imported here, because the help of a command needs no condenser
    from foldlog.condensers import reports_of

    reason = condensation.metadata.get("reason")
    outcome = condensation.metadata.get("outcome")
    if outcome == "declined":
        return f"declined: {printable(str(reason or 'no reason given'), one_line=True)}"
    codes = [] if reason is None else str(reason).split(", ")
    figures = {} if brief else condensation.metadata
    if set(codes) <= WORDS.keys():
        words = [_in_words(code, figures) for code in codes]
    else:
        words = [str(reason)]
    if requests and _ASKED not in words:
        words.append(_ASKED)
    if brief:
        request_reasons = ""
    else:
        request_reasons = "; ".join(
            dict.fromkeys(request.reason for request in requests if request.reason)
        )
    text = ", ".join(
        f"{word} ({request_reasons})" if word == _ASKED and request_reasons else word
        for word in words
    )
    parts = [text] if text else []
    if outcome == "reset":
        parts.append("forgetting less was not enough, so the context was reset")
    failures = [
        report
        for report in reports_of(condensation)
        if isinstance(report, Mapping) and "failure" in report
    ]
    instead_of = condensation.metadata.get("instead_of")
    if failures and not brief and ("parts" not in condensation.metadata or instead_of):
        parts.append(f"the model failed: {failures[-1].get('problem')}")
    if instead_of:
        parts.append(f"a digest took the place of the condenser {instead_of}")
    if condensation.metadata.get("cut"):
        parts.append("the summary was cut off at the model's output limit")
    return printable("; ".join(parts), one_line=True)


def _in_words(code: str, metadata: JsonMap) -> str:
    """Return a reason in words, with its figures if the metadata has them."""
    before = metadata.get(f"{code}_before")
    most = metadata.get(f"{code}_max")
    if type(before) is int and type(most) is int:
        return f"View of {before:,} {code} exceeded {most:,}"
    return WORDS[code]


def requests_before(
    store: Store, conversation: str, condensation_id: int
) -> tuple[CondensationRequest, ...]:
    """Return the requests that a condensation answers: the requests since the previous
    condensation. The cost is one pass over the structural events before the condensation.
    """
    requests: list[CondensationRequest] = []
    for event in store.query(
        conversation, lambda reading: [*reading.structural_events(0, condensation_id)]
    ):
        if isinstance(event, CondensationAction):
            requests.clear()
        elif isinstance(event, CondensationRequest):
            requests.append(event)
    return tuple(requests)
