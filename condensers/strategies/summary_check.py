"""This module decides whether a text of a model can be a summary of events.

``fit_to_replace`` compares sizes: a summary is not larger than its events.

``judge_summary`` looks for terms of the events in the text. So a refusal in any language, a
question to the user or a word that is repeated a thousand times is no summary, without a list of
phrases. A text that holds such terms may still be a copy of a part of the events, or small talk
with a few names in it. A digest stands below such a text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from itertools import chain, pairwise
from typing import Final, NamedTuple

from foldlog.condensers.models.estimate import estimate, event_size
from foldlog.condensers.models.replies import useless
from foldlog.condensers.prompts import Prompt
from foldlog.condensers.prompts.rendering import event_text
from foldlog.condensers.reply import Reply
from foldlog.condensers.reports import DOUBTFUL, NOT_JUDGED
from foldlog.condensers.strategies.summarizing import SMALL
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
fewer than ``_TERMS_LEAST`` say too little to be certain of a summary that has one.
"""
_TERMS_FEW: Final = 5
"""A summary of events with fewer terms may have none of them."""
_SHARED_CERTAIN: Final = 5
"""A text with fewer terms may be an apology with some names in it."""
_PART_LEAST: Final = 0.01
_SIZE_ENOUGH: Final = 64
"""A text of so many tokens is not tiny, however many tokens it replaces."""
_SHARE_LEAST: Final = 1 / 6
"""The part of a text's words that are terms of the events, in a summary of them. In summaries of
models in real histories it is a fifth to a half, and in summaries of other histories mostly less.
"""
_PARTS: Final = 3
"""A summary says something of more than one third of the events. A copy of their beginning, or of
the newest event, does not.
"""


def fit_to_replace(reply: Reply, text: str, events: Sequence[Event]) -> str:
    """Return the summary ``text``. Raises ``ModelCallFailed`` if it cannot replace the events,
    because it is empty, or has more estimated tokens than the events and than ``SMALL``.
    """
    if not text.strip():
        raise useless(reply, "the reply has no text")
    tokens = event_size(CondensationSummary(content=text))
    replaced = sum(map(event_size, events))
    if tokens > max(replaced, SMALL):
        raise useless(
            reply,
            f"the summary has about {tokens} tokens, more than the {replaced} tokens of the events"
            " that it replaces",
        )
    return text


class Judgement(NamedTuple):
    """``problem`` says why a text is no summary, and is empty if it may be one. ``doubt`` is
    ``NOT_JUDGED`` or ``DOUBTFUL`` if it may still be none, or a summary of a part of the events
    only.
    """

    problem: str = ""
    doubt: str = ""


def judge_summary(
    text: str, events: Sequence[Event], prompt: Prompt, before: Sequence[Event] = ()
) -> Judgement:
    """Judge whether ``text`` can be a summary of the events. Words of the ``prompt`` are no terms,
    and neither are words of earlier summaries and of the events ``before``, which the model read
    too and could just repeat. Cost: the function reads the texts of the events.
    """
    summaries = [event for event in events if isinstance(event, CondensationSummary)]
    new = [_words_of(event) for event in events if not isinstance(event, CondensationSummary)]
    known_words = set[str]().union(*map(_words_of, (*before, *summaries)))
    terms = _rare_words(new).difference(known_words, _words(prompt.text))
    if len(terms) < _TERMS_FEW:
        return Judgement(doubt=NOT_JUDGED)
    words = {*_words(text)} - known_words
    shared = terms & words
    if len(shared) < (_SHARED_LEAST if len(terms) >= _TERMS_MANY else 1):
        return Judgement(
            f"it has {len(shared)} of the {len(terms)} terms of the events that it replaces"
        )
    tokens = _tokens_once(text)
    replaced = sum(map(event_size, events))
    if tokens < min(_PART_LEAST * replaced, _SIZE_ENOUGH):
        return Judgement(
            f"its {tokens} tokens are less than a hundredth of the {replaced} that it replaces"
        )
    if len(terms) < _TERMS_LEAST:
        return Judgement(doubt=NOT_JUDGED)
    is_dense = len(shared) >= max(_SHARED_CERTAIN, _SHARE_LEAST * len(words))
    if is_dense and not _is_of_one_part(shared, terms, new):
        return Judgement()
    return Judgement(doubt=DOUBTFUL)


def _tokens_once(text: str) -> int:
    """Return the tokens of a text without its repetitions. Two neighbouring words are a repetition
    if they stood side by side before.
    """
    pairs = [*pairwise(_WORD.findall(text.casefold()))]
    return estimate(text) * len({*pairs}) // len(pairs) if pairs else estimate(text)


def _is_of_one_part(shared: Set[str], terms: set[str], words_of: Sequence[Set[str]]) -> bool:
    """Return whether all terms in ``shared`` are of one part of the events, although other parts
    have terms too.
    """
    size = -(-len(words_of) // _PARTS)
    parts = [
        terms.intersection(chain.from_iterable(words_of[start : start + size]))
        for start in range(0, len(words_of), size)
    ]
    covered = sum(bool(part & shared) for part in parts)
    return covered < min(2, sum(map(bool, parts)))


def _rare_words(words_of: Sequence[Set[str]]) -> set[str]:
    found_in = Counter(chain.from_iterable(words_of))
    most = max(1, int(_RARE_IN * len(words_of)))
    return {word for word, number in found_in.items() if number <= most}


def _words_of(event: Event) -> set[str]:
    return {*_words(event_text(event))}


def _words(text: str) -> Iterator[str]:
    for word in _WORD.findall(text.casefold()):
        if _WITHOUT_SPACES.search(word):
            yield from (word[place : place + 2] for place in range(len(word) - 1))
        elif len(word) >= (_DIGITS_LEAST if any(map(str.isdigit, word)) else _LETTERS_LEAST):
            yield word
