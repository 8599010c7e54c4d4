"""Describe what a condensation dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foldlog._reports.words.gist import count, count_shown

if TYPE_CHECKING:
    from foldlog._reports.answers.views import DroppedDocument, DroppedTermDocument

_NAMED = 5
"""The maximum number of terms that a sentence names."""


def dropped_words(drop: DroppedDocument) -> str:
    """Return a sentence about the dropped events, and the dropped terms that the agent needed
    again.
    """
    sentence = (
        f"condensation {drop.condensation} dropped {count_shown(drop.events)} of ≈"
        f" {drop.tokens:,} tokens, with {count(len(drop.terms), 'term')} that the new View"
        " does not have"
    )
    needed = needed_words(drop.terms)
    return f"{sentence}, and the agent needed {needed}" if needed else sentence


def needed_words(terms: Sequence[DroppedTermDocument]) -> str:
    """Return how many dropped terms the agent needed again, and the first of them, or an empty
    text.
    """
    again = sorted((term.needed_in, term.term) for term in terms if term.needed_in is not None)
    named = ", ".join(f"{term} (event {event})" for event, term in again[:_NAMED])
    if again:
        return f"{len(again):,} of them again: {named}{', …' if len(again) > _NAMED else ''}"
    return ""
