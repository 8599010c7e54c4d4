"""The service answers in words that fit each language."""

from pathlib import Path

import pytest

import foldlog
from foldlog._app.server.problems import refusal_of
from foldlog._app.server.remedies import REMEDIES
from foldlog.eventstore import InvalidArgument

ROOT = Path(foldlog.__file__).parents[1]


@pytest.fixture(scope="module")
def source():
    """The texts of the library, with the parts of a message joined."""
    files = [
        file
        for room in ("eventstore", "foldlog/_history", "foldlog/_reports", "foldlog/formats")
        for file in (ROOT / room).rglob("*.py")
    ]
    lines = "\n".join(file.read_text() for file in files).splitlines()
    texts = [line.strip() for line in lines]
    return "".join(text.lstrip("f")[1:-1] if text.endswith(('"', "'")) else text for text in texts)


@pytest.mark.parametrize("remedy", REMEDIES)
def test_each_replaced_remedy_is_one_of_the_library(source, remedy):
    assert remedy in source


def test_a_refusal_has_the_words_of_the_service():
    error = InvalidArgument("c1 has no effect with key 'k'; history.effects() returns all effects")
    refusal = refusal_of(error)
    assert refusal.detail == "c1 has no effect with key 'k'; the path /effects lists all effects"
