"""A document read through a small window is the document read at once."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foldlog._formats.files.readers import elements
from foldlog._formats.files.scanner import Broken, Scanner
from foldlog._formats.json_text import DEPTH_MAX, RECORD_SIZE_MAX, TOO_DEEP, TOO_LONG, UnreadableJson, parse

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just('\\"[]{},\n'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)
documents = st.builds(
    lambda array, indent, ascii: json.dumps(array, indent=indent, ensure_ascii=ascii),
    st.lists(values, max_size=6),
    st.none() | st.integers(0, 2),
    st.booleans(),
)


windows = st.sampled_from([1, 3, 64])
"""Windows so small that every value is cut somewhere."""


def read(text, window=64):
    return Scanner(io.BytesIO(text), window=window)


@example(document="[0.5, 1e3, -0, 12, true]", window=1)
@given(document=documents, window=windows)
def test_the_elements_of_an_array_are_its_elements(window, document):
    array = list(elements(read(document.encode(), window), offsets=True))
    assert [element.value for element in array] == json.loads(document)
    for element in array:
        before = document.encode()[: element.offset].decode()
        assert element.line == 1 + before.count("\n")
        assert next(iter(elements(read(b"[" + document.encode()[element.offset :])))).value == element.value


@given(document=documents, window=windows)
def test_to_skip_is_to_read_and_forget(window, document):
    scan = read(f" {document} 7".encode(), window)
    scan.skip()
    assert scan.value() == 7
    assert scan.peek() == ""


@example(document="[12]", window=64, cut=0.5)
@example(document="[1.5]", window=64, cut=0.6)
@given(document=documents, window=windows, cut=st.floats(0, 1, exclude_max=True))
def test_a_document_that_is_cut_gives_a_prefix_and_says_so(window, document, cut):
    array = list(elements(read(document.encode()[: int(len(document.encode()) * cut)], window)))
    assert array[-1].problem is not None
    read_values = [element.value for element in array[:-1]]
    assert read_values == json.loads(document)[: len(read_values)]
    assert all(element.problem is None for element in array[:-1])


@given(
    text=st.binary(max_size=60) | st.text(alphabet='[]{},:"\\u0a1e-. \n', max_size=60).map(str.encode), window=windows
)
def test_bytes_of_any_kind_end_in_an_answer(window, text):
    for element in elements(read(b"[" + text, window)):
        assert element.problem is None or "\n" not in element.problem


def test_a_byte_order_mark_is_no_text():
    scan = read(b"\xef\xbb\xbf [1]")
    assert scan.peek() == "["
    assert scan.offset == 4


def test_what_is_before_a_damaged_byte_is_read():
    first, broken = elements(read(b'["a", "\xff"]'))
    assert (first.value, broken.problem) == ("a", "not UTF-8")


def test_a_value_that_is_too_long_or_too_deep_is_gone_over():
    long = b'"%s"' % (b"x" * RECORD_SIZE_MAX)
    deep = b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1)
    deeper = b"[" * 100_000 + b"]" * 100_000
    problems = [element.problem for element in elements(read(b"[%s, %s, %s, %s]" % (long, deep, deeper, b"1" * 5000)))]
    assert problems == [TOO_LONG, TOO_DEEP, TOO_DEEP, "holds a number with too many digits"]


def test_what_is_as_deep_as_can_be_is_read():
    text = b"[" * DEPTH_MAX + b"]" * DEPTH_MAX
    assert read(text).value() == parse(text)
    with pytest.raises(UnreadableJson, match="nested deeper than"):
        parse(b"[" + text + b"]")


@pytest.mark.parametrize("text", [b"", b"[1", b"[1,", b"[1 2]", b"{}", b'["', b"[tru", b"[nope]", b'["\\x"]'])
def test_what_breaks_off_says_so_once(text):
    array = list(elements(read(text)))
    assert [element.problem is None for element in array] == [True] * (len(array) - 1) + [False]


@pytest.mark.parametrize("text", [b'["', b'"\\', b"[[", b'{"a": "'])
@pytest.mark.parametrize("window", [1, 64])
def test_skipping_what_never_ends_is_broken(text, window):
    with pytest.raises(Broken, match="ends in the middle"):
        read(text, window).skip()
