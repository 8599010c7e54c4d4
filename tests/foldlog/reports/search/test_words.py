"""The words of an index: each text that a search matches has the hashes that are looked up."""

import random
import re
import sys
from collections import defaultdict

import pytest

from foldlog._reports.search import searching
from foldlog._reports.search.searching import SearchTerms, on_one_line
from foldlog._reports.search.words import hashes_of, hashes_to_find

TEXT = (
    "Die Donaudampfschifffahrt auf der STRASSE; src/core/main_util.py, don't __init__ v1.2.3"
    ' {"path": "C:\\\\x\\ty.txt"} 数据库索引，搜索。데이터 Μαΐου ΣΊΣΥΦΟΣ naïve ﬁle ½ İstanbul ıslak'
)


@pytest.mark.parametrize(
    "words",
    [
        "donau",
        "Donaudampf*",
        "straße STRASSE",
        "src/core",
        '"core/main_util.py"',
        "main_",
        "util",
        "don't",
        "__in",
        "1.2",
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
        "x",
    ],
)
def test_matching_text_has_the_hashes_of_a_search(words):
    terms = SearchTerms(words)
    found = [term for term in terms.terms if SearchTerms(term).stand_in(TEXT)]
    assert {*hashes_to_find(found)} <= hashes_of([TEXT])


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
