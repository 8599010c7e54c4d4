"""The words of a text, as numbers for an index.

A search finds the beginnings of words. The index therefore contains the hashes of a few beginnings
of each word. The words of a search are looked up by the longest of these beginnings, and the texts
that the index finds are then searched like all others.

Neighbouring words are in the index as *pairs*: numbers of few bits, because most pairs are rare.
They find phrases whose words are in most texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import xor
from typing import Final, TypeVar
from unicodedata import normalize
from zlib import crc32

T = TypeVar("T")

_WORD: Final = re.compile(r"\w+")
_LENGTHS: Final = (2, 3, 5, 8)
"""The lengths of the beginnings, in characters. A word that does not begin with an ASCII character
also has a beginning of one character, because one Chinese character may be a word.
"""
_LENGTHS_OF_NAMES: Final = (6, 7)
"""Further lengths for beginnings with an underscore or a digit: names such as ``test_17`` are rare,
and often have the same five characters in front.
"""
_IN_NAMES: Final = re.compile(r"[_\d]")
_SAME: Final = str.maketrans({"İ": "i", "ı": "i"})
"""Letters that ``re.IGNORECASE`` compares as equal, and ``str.casefold`` does not."""

PAIRS: Final = 1 << 14
"""The number of different pairs. A part of 4 messages has some 300 pairs, so it seems to have one
in 54 of the pairs that it lacks.
"""
_SECOND: Final = 2
"""The number of characters of the second word of a pair, because a search may have the beginning
of its last word only.
"""


def words_in(text: str) -> list[str]:
    return _WORD.findall(composed(text))


def hashes_of(texts: Iterable[Sequence[str]]) -> set[int]:
    """Return the hashes of all beginnings of words in texts. ``texts`` are the words of each text.
    A hash has 32 bits.
    """
    words = set[str]()
    for text in texts:
        words.update(text)
    hashes = set[int]().union(*map(_HASHES.__getitem__, words))
    _HASHES.limit()
    return hashes


def hashes_to_find(terms: Iterable[str]) -> list[int]:
    """Return the hashes that a text has if it contains all terms. The hash of the longest beginning
    comes first. An ASCII character alone has no hash.
    """
    beginnings = set[str]()
    for term in terms:
        for word in words_in(term):
            beginnings.update(_longest(_beginnings(_folded(word))))
    return [_hash(beginning) for beginning in sorted(beginnings, key=len, reverse=True)]


def pairs_of(texts: Iterable[Sequence[str]]) -> set[int]:
    """Return the pairs of neighbouring words in texts, as numbers below ``PAIRS``. ``texts`` are
    the words of each text.
    """
    pairs = set[int]()
    for text in texts:
        firsts = map(_FIRSTS.__getitem__, text)
        seconds = map(_SECONDS.__getitem__, [word[:_SECOND] for word in text[1:]])
        pairs.update(map(xor, firsts, seconds))
    _FIRSTS.limit()
    _SECONDS.limit()
    return pairs


def pairs_to_find(terms: Iterable[str]) -> list[int]:
    """Return the pairs that a text has if it contains all terms, in the order of the words."""
    pairs = list[int]()
    for term in terms:
        words = words_in(term)
        # The last word of a term may be the beginning of a longer word.
        if words and len(words[-1]) < _SECOND:
            words.pop()
        pairs += [
            _as_first(first) ^ _as_second(second[:_SECOND]) for first, second in pairwise(words)
        ]
    return [*dict.fromkeys(pairs)]


class _Computed(dict[str, T]):
    """A function of words with its values. Most words of a text are frequent, and a lookup takes a
    tenth of the time of ``lru_cache``, which keeps an order.
    """

    def __init__(self, function: Callable[[str], T]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, word: str) -> T:
        value = self[word] = self._function(word)
        return value

    def limit(self) -> None:
        if len(self) > _VALUES_MAX:
            self.clear()


def _as_first(word: str) -> int:
    return _hash(_folded(word)) % PAIRS


def _as_second(beginning: str) -> int:
    """Return the number of a word as the second of a pair. CRCs are linear: without the product,
    many pairs of similar words would be one pair.
    """
    return (_hash(_folded(beginning)) * 0x9E3779B1 >> 16) % PAIRS


def _hashes_of_word(word: str) -> tuple[int, ...]:
    return tuple(_hash(beginning) for beginning in _beginnings(_folded(word)))


_FIRSTS: Final = _Computed(_as_first)
_SECONDS: Final = _Computed(_as_second)
_HASHES: Final = _Computed(_hashes_of_word)
_VALUES_MAX: Final = 100_000


def composed(text: str) -> str:
    """Return a text in which a letter and its marks are one character."""
    return text if text.isascii() else normalize("NFC", text)


def _beginnings(word: str) -> list[str]:
    """Return the beginnings of a word that the index has: see ``_LENGTHS`` and
    ``_LENGTHS_OF_NAMES``.
    """
    lengths = _LENGTHS if word[0].isascii() else (1, *_LENGTHS)
    beginnings = [word[:length] for length in lengths if len(word) >= length]
    beginnings += [
        word[:length]
        for length in _LENGTHS_OF_NAMES
        if len(word) >= length and _IN_NAMES.search(word, 0, length)
    ]
    return beginnings


def _longest(beginnings: Iterable[str]) -> list[str]:
    longest = max(beginnings, key=len, default=None)
    return [] if longest is None else [longest]


def _folded(word: str) -> str:
    return word.translate(_SAME).casefold()


def _hash(beginning: str) -> int:
    return crc32(beginning.encode(errors="surrogatepass"))
