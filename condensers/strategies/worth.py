"""This module decides whether a text of a model can be a summary of events: it holds terms of what
it replaces, and is not tiny beside it. So a refusal in any language, a question to the user or a
word that is repeated a thousand times is no summary, without a list of phrases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from foldlog.condensers.models.estimate import estimate, event_size
from foldlog.condensers.prompts import Prompt
from foldlog.condensers.prompts.rendering import event_text
from foldlog.eventstore import CondensationSummary, Event

_WORD: Final = re.compile(r"\w+")
_WITHOUT_SPACES: Final = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
"""Scripts that write no spaces between words. Two characters of them count as a word."""
_LETTERS_LEAST: Final = 4
_DIGITS_LEAST: Final = 3
_RARE_IN: Final = 0.1
"""A term is in at most this part of the events: words that stand in most are in a refusal too."""
_TERMS_MANY: Final = 40
_SHARED_LEAST: Final = 3
"""How many terms a summary of events with ``_TERMS_MANY`` terms or more has at least."""
_TERMS_LEAST: Final = 12
"""A summary of events with fewer terms than ``_TERMS_MANY`` has at least one of them. Events with
fewer than ``_TERMS_LEAST`` say too little to judge a summary, which may have other words.
"""
_PART_LEAST: Final = 0.01
_SIZE_ENOUGH: Final = 64
"""A text of so many tokens is not tiny, however many tokens it replaces."""


class Worth(NamedTuple):
    """``problem`` says why a text is no summary, and is empty if it may be one. ``is_judged`` is
    false if the events say too little to tell.
    """

    problem: str = ""
    is_judged: bool = True


def worth_of(
    text: str, events: Sequence[Event], prompt: Prompt, before: Sequence[Event] = ()
) -> Worth:
    """Judge whether ``text`` can be a summary of the events. Words of the ``prompt`` are no terms,
    and neither are words of earlier summaries and of the events ``before``, which the model read
    too and could just repeat. Cost: the function reads the texts of the events.
    """
    new = [event for event in events if not isinstance(event, CondensationSummary)]
    terms = _terms_of(new) - {*_words(prompt.text)}
    for event in before:
        terms -= {*_words(event_text(event))}
    if len(terms) < _TERMS_LEAST:
        return Worth(is_judged=False)
    tokens = estimate(text)
    replaced = sum(map(event_size, events))
    if tokens < min(_PART_LEAST * replaced, _SIZE_ENOUGH):
        return Worth(
            f"its {tokens} tokens are less than a hundredth of the {replaced} that it replaces"
        )
    shared = len(terms & {*_words(text)})
    if shared < (_SHARED_LEAST if len(terms) >= _TERMS_MANY else 1):
        return Worth(f"it has {shared} of the {len(terms)} terms of the events that it replaces")
    return Worth()


def _terms_of(events: Sequence[Event]) -> set[str]:
    found_in = Counter[str]()
    for event in events:
        found_in.update({*_words(event_text(event))})
    most = max(1, int(_RARE_IN * len(events)))
    return {word for word, number in found_in.items() if number <= most}


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if _WITHOUT_SPACES.search(word):
            yield from (word[place : place + 2] for place in range(len(word) - 1))
        elif len(word) >= (_DIGITS_LEAST if any(map(str.isdigit, word)) else _LETTERS_LEAST):
            yield word
