"""This module finds the words that differ between two texts, and the words around them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from textwrap import shorten

from foldlog._base.values import count_equal_beginning
from foldlog._reports.answers.runs import PassageDocument

SHOWN = 3
"""The maximum number of passages of a pair of texts."""
_WORDS_COMPARED = 2_000
"""Only this number of words is compared, because more words would take too long."""
_WORDS_BETWEEN = 2
"""If at most this number of equal words separates two differences, they are shown as one passage.
"""
_WORDS_MAX = 16
"""The maximum number of differing words that a passage shows."""
_CHARACTERS_MAX = 160
"""The maximum number of characters of these words."""
_CHARACTERS_AROUND = 40
"""The maximum number of characters of the equal words on each side."""


def find_passages(text: str, other: str) -> tuple[tuple[PassageDocument, ...], int]:
    """Return the first passages in which two texts differ, and the number of further ones among the
    compared words.
    """
    words = text.split()
    other_words = other.split()
    start = count_equal_beginning(words, other_words)
    compared = words[start : start + _WORDS_COMPARED]
    other_compared = other_words[start : start + _WORDS_COMPARED]
    places = list(_differing_places(compared, other_compared))
    if len(places) > 1:
        begin, end, other_begin, other_end = places[-1]
        is_last = end == len(compared) and other_end == len(other_compared)
        # After a word that only one text has, the compared parts end at different words: the other
        # text may have the last words of one part behind its own part.
        is_behind = begin < end and len(other_words) > start + _WORDS_COMPARED
        other_is_behind = other_begin < other_end and len(words) > start + _WORDS_COMPARED
        if is_last and (is_behind or other_is_behind):
            places.pop()
    passages = [
        PassageDocument(
            before=_last_words(words[: start + begin]),
            words=_join(compared[begin:end]),
            other_words=_join(other_compared[other_begin:other_end]),
            after=_first_words(words[start + end :]),
        )
        for begin, end, other_begin, other_end in places[:SHOWN]
    ]
    return tuple(passages), max(0, len(places) - SHOWN)


def count_lines_apart(text: str, other: str) -> tuple[int, int]:
    """Return for each of two texts how many of its lines the other does not have."""
    lines = Counter(text.splitlines())
    other_lines = Counter(other.splitlines())
    return (lines - other_lines).total(), (other_lines - lines).total()


def _differing_places(
    words: Sequence[str], other_words: Sequence[str]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the first word and the word behind the last word of each difference, in both lists."""
    matcher = SequenceMatcher(None, words, other_words, autojunk=False)
    place: tuple[int, int, int, int] | None = None
    for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        if place is not None and begin - place[1] <= _WORDS_BETWEEN:
            place = (place[0], end, place[2], other_end)
            continue
        if place is not None:
            yield place
        place = (begin, end, other_begin, other_end)
    if place is not None:
        yield place


def _join(words: Sequence[str]) -> str:
    """Return words as a text, cut to the limits of a passage."""
    text = " ".join(words[:_WORDS_MAX])
    is_cut = len(words) > _WORDS_MAX or len(text) > _CHARACTERS_MAX
    return f"{text[:_CHARACTERS_MAX]}…" if is_cut else text


def _last_words(words: Sequence[str]) -> str:
    """Return the last words, as many as fit. No more words than characters are needed."""
    backwards = _first_words(words[: -_CHARACTERS_AROUND - 1 : -1])
    return " ".join(reversed(backwards.split()))


def _first_words(words: Sequence[str]) -> str:
    """Return the first words, as many as fit."""
    text = " ".join(words[:_CHARACTERS_AROUND])
    return shorten(text, _CHARACTERS_AROUND, placeholder=" …")
