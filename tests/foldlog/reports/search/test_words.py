"""The words of an index: each text that a search matches has the hashes that are looked up."""

import itertools
import json
import random
import re
import sys
import unicodedata
from collections import defaultdict

import pytest

from foldlog._reports.search import searching
from foldlog._reports.search.searching import SearchTerms, on_one_line
from foldlog._reports.search.words import (
    hashes_of,
    hashes_to_find,
    pairs_of,
    pairs_to_find,
    words_in,
)

TEXT = (
    "Die Donaudampfschifffahrt auf der STRASSE; src/core/main_util.py, don't __init__ v1.2.3"
    ' {"path": "C:\\\\x\\ty.txt"} 数据库索引，搜索。데이터 Μαΐου ΣΊΣΥΦΟΣ naïve ﬁle ½ İstanbul ıslak'
)


@pytest.mark.parametrize(
    "words",
    [
        "donau",
        "Donaudampf*",
        "strasse STRASSE",
        "src/core",
        '"core/main_util.py"',
        "main_",
        "don't",
        "__in",
        "数",
        "数据库",
        "搜索",
        "데이",
        "μαΐ",
        "σίσυφοσ",
        "NAÏ",
        "½",
        "istanbul",
        "ISLAK",
        '"auf der"',
        '"path c"',
        '"donaudampfschifffahrt AUF der STR"',
        '"strasse src/core/main_util py"',
        '"v1.2 3"',
        '"数据库索引 搜"',
        '"搜索 데이터"',
        '"σίσυφος naïve ﬁle ½ is"',
        '"istanbul I"',
    ],
)
def test_matching_text_has_the_hashes_of_a_search(words):
    terms = SearchTerms(words)
    assert terms.stand_in(TEXT)
    hashes = hashes_to_find(terms.terms)
    assert hashes
    assert {*hashes} <= hashes_of([words_in(TEXT)])
    assert {*pairs_to_find(terms.terms)} <= pairs_of([words_in(TEXT)])


def test_pairs_of_a_phrase_end_before_a_last_word_of_one_letter():
    assert pairs_to_find(["the", "a"]) == pairs_to_find(["the a"]) == []
    assert pairs_to_find(["the a store"]) == [*pairs_to_find(["the a store's"])][:2]
    assert len(pairs_to_find(["the a store s"])) == 2
    assert len({*pairs_to_find(["aa aa bb bb cc cc"])}) == 5
    assert pairs_to_find(["the store"]) == pairs_to_find(["the street"]) != pairs_to_find(["a st"])


def test_letters_that_a_search_compares_as_equal_have_equal_hashes():
    """``re.IGNORECASE`` decides which letters are equal. One that has no other case is only equal to
    itself.
    """
    variants = defaultdict(set)
    for letter in map(chr, range(sys.maxunicode + 1)):
        if letter.isalpha() and not letter.lower() == letter.upper() == letter.casefold():
            for other in {letter.lower(), letter.upper(), letter.title(), letter.casefold()}:
                if len(other) == 1:
                    variants[letter].add(other)
                    variants[other].add(letter)
    compared = 0
    for letter, others in variants.items():
        near = set[str]().union(*(variants[other] for other in others)) | others
        for other in near:
            if re.fullmatch(re.escape(letter), other, re.IGNORECASE) and re.match(r"\w", other):
                assert hashes_to_find([letter * 3]) == hashes_to_find([other * 3]), (letter, other)
                compared += 1
    assert compared > 2_000


def test_rarest_beginning_comes_first_and_single_letters_have_no_hash():
    assert hashes_to_find(["ab encyclopaedia"]) == [
        *hashes_to_find(["encyclop"]),
        *hashes_to_find(["ab"]),
    ]
    assert hashes_to_find(["a"]) == []
    assert len(hashes_to_find(["数"])) == 1


def test_names_with_digits_or_underscores_have_more_beginnings():
    assert hashes_to_find(["test_17"]) != hashes_to_find(["test_16"]) != hashes_to_find(["test_1"])
    assert hashes_to_find(["testing"]) == hashes_to_find(["testin"]) == hashes_to_find(["testi"])
    for word in (
        "test_1789",
        "x1",
        "abcdefg7",
        "_private",
        "straße_9",
        "数据库索引搜索7",
        "ΜΑΪ1234567",
    ):
        for length in range(1, len(word) + 1):
            assert {*hashes_to_find([word[:length]])} <= hashes_of(
                [words_in(f"the {word.swapcase()} is")]
            )


def test_a_long_text_is_searched_in_steps_with_the_same_places(monkeypatch):
    chosen = random.Random(3)
    queries = ["a", "ab", "ba*", '"a b"', '"ab a"', "..a..", '"..a.. b"', "-a", '"b ä"', "Ä"]
    has_found = False
    for _ in range(300):
        text = "".join(chosen.choices(["a", "b", "Ä", " ", "  ", ".", "-", "\n", "\u2028"], k=60))
        line = " ".join(text.split())
        expected = [SearchTerms(query).places_in(line) for query in queries]
        with monkeypatch.context() as patch:
            patch.setattr(searching, "_STEP", chosen.choice([1, 2, 7, 13]))
            assert on_one_line(text) == line
            assert [SearchTerms(query).places_in(line) for query in queries] == expected
        has_found |= any(expected)
    assert has_found


LETTERS = ["a", "e", "E", "é", "É", "ü", "ñ", "ế", "Å", "ǰ", "İ", "ΐ", "한", "x", "1"]


def test_form_of_accents_does_not_matter():
    """The reference is a search in the text whose letters have their accents in them."""
    choice = random.Random(4)
    found = 0
    for _ in range(2_000):
        words = ["".join(choice.choices(LETTERS, k=choice.randrange(1, 6))) for _ in range(3)]
        term = choice.choice(words)[: choice.randrange(1, 4)]
        if choice.random() < 0.2:
            term = choice.choice(LETTERS)
        composed = " ".join(words)
        expected = re.search(rf"(?<!\w){term}", composed, re.IGNORECASE) is not None
        found += expected
        for text_form, term_form in itertools.product(("NFC", "NFD"), repeat=2):
            text = unicodedata.normalize(text_form, composed)
            typed = unicodedata.normalize(term_form, term)
            terms = SearchTerms(typed)
            if terms.stand_in(text):
                assert {*hashes_to_find([typed])} <= hashes_of([words_in(text)])
            phrase = unicodedata.normalize(term_form, f"{words[0]} {words[1][:2]}")
            if SearchTerms(f'"{phrase}"').stand_in(text):
                assert {*pairs_to_find(SearchTerms(f'"{phrase}"').terms)} <= pairs_of(
                    [words_in(text)]
                )
            if {"ǰ", "İ", "ΐ"}.isdisjoint(composed):
                assert terms.stand_in(text) == expected, (text, typed)
                for stored in (text, json.dumps(text)):
                    assert not expected or terms.may_be_in_event(stored.lower().encode())
    assert 500 < found < 2_000


@pytest.mark.parametrize("words", ['"café noir"', "Café", '"noir de"', "caf"])
def test_place_of_words_with_accents(words):
    for form in ("NFC", "NFD"):
        text = "a " + unicodedata.normalize(form, "café noir de café")
        (pattern,) = SearchTerms(unicodedata.normalize("NFC", words)).patterns
        spans = [text[begin:end] for begin, end in pattern.spans_in(text)]
        assert [unicodedata.normalize("NFC", span.casefold()) for span in spans] == {
            '"café noir"': ["café noir"],
            "Café": ["café", "café"],
            '"noir de"': ["noir de"],
            "caf": ["caf", "caf"],
        }[words]
    assert SearchTerms("cafe").places_in(text) == []


def test_long_text_with_accents_is_found_in_steps(monkeypatch):
    monkeypatch.setattr(searching, "_STEP", 5)
    text = unicodedata.normalize("NFD", "aa éééé bb éèéè cc")
    (place,) = SearchTerms('"éèéè cc"').places_in(text)
    assert unicodedata.normalize("NFC", text[place:]) == "éèéè cc"
