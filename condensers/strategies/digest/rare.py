"""This module finds what is rare in a text: facts in plain words, such as "the nightly job writes
to the harbour disk", which hold no name of a file or an identifier.

The rule knows no language. Each text is counted once, when its event joins the digest. The rarity
of a word is how many times all words counted so far must be halved to arrive at this word's number.
A passage is as rare as its words are on average. Passages are the lines of a text, and the
sentences of a line that is long.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest

from foldlog.condensers.strategies.user_words import SENTENCE_END

_WORD = re.compile(r"[^\W\d_]{3,}|\d{2,5}")
_WORDS_LEAST = 3
"""How many words a passage of a result has at least. A person says much in one or two words, such
as "No emojis".
"""
_PASSAGE_MAX = 160
_PLACES_MAX = 6
"""How many passages of a text are remembered. More would be one long result alone."""
_RARER = 2.5
"""How much rarer than an average passage a passage must be. A lower number lists common lines, and
a higher one leaves out facts whose words also stand elsewhere.
"""


@dataclass(slots=True)
class WordCounts:
    """How often each word stood in the texts, and the rarity of all their passages in sum."""

    counts: Counter[str] = field(default_factory=Counter)
    words: int = 0
    passages: int = 0
    rarity: float = 0

    def copy(self) -> WordCounts:
        return replace(self, counts=self.counts.copy())

    def rare_passages(self, text: str) -> list[str]:
        """Count the words of a text. Return the passages that are rarer than others, in order."""
        passages = [*_passages(text)]
        rare = []
        for place, rarity in enumerate(self.rarities(passages, _WORDS_LEAST)):
            if rarity:
                self.passages += 1
                self.rarity += rarity
                if rarity >= self.rarity / self.passages + _RARER:
                    rare.append((rarity, -place))
        places = sorted(-place for _, place in nlargest(_PLACES_MAX, rare))
        return [passages[place] for place in places if len(passages[place]) <= _PASSAGE_MAX]

    def rarities(self, passages: Sequence[str], words_least: int = 1) -> Iterator[float]:
        """Count the words of passages. Return the rarity of each, or 0 if it has fewer words than
        ``words_least``.
        """
        words_of = [_WORD.findall(passage.lower()) for passage in passages]
        for words in words_of:
            self.counts.update(words)
            self.words += len(words)
        most = self.words.bit_length()
        count = self.counts.__getitem__
        for words in words_of:
            halved = sum(map(int.bit_length, map(count, words)))
            yield most - halved / len(words) if len(words) >= words_least else 0


def _passages(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if len(line) > _PASSAGE_MAX:
            yield from SENTENCE_END.split(line)
        else:
            yield line
