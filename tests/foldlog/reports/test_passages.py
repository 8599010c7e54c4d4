"""The words that differ between two texts."""

from foldlog._reports.passages import count_lines_apart, find_passages


def words_of(text, other):
    passages, _ = find_passages(text, other)
    return [(passage.words, passage.other_words) for passage in passages]


def test_early_and_late_differences_are_both_named():
    middle = "the same words " * 100
    assert words_of(f"a 200 b {middle} c old d", f"a 100 b {middle} c d") == [
        ("200", "100"),
        ("old", ""),
    ]


def test_only_words_around_difference_are_cut():
    (passage,), _ = find_passages("far " * 50 + "left" + " away" * 50, "far " * 50 + "right")
    assert passage.words.startswith("left away")
    assert passage.other_words == "right"
    assert passage.before == "… far far far far far far far far far"
    equal = f"left {'away ' * 50}"
    other = f"right {'away ' * 50}"
    (passage,), _ = find_passages(equal, other)
    assert passage.before == ""
    assert passage.after == "away away away away away away away …"


def test_differences_close_to_each_other_are_one_passage():
    assert words_of("1 a 2 b c d e", "3 a 4 b c d f") == [("1 a 2", "3 a 4"), ("e", "f")]


def test_further_passages_are_counted():
    text = " ".join(f"{number} a b c" for number in range(5))
    other = " ".join(f"-{number} a b c" for number in range(5))
    passages, more = find_passages(text, other)
    assert (len(passages), more) == (3, 2)


def test_lines_are_counted_that_the_other_text_lacks():
    assert count_lines_apart("a\nb\nb\nc", "c\na\nb\nd") == (1, 1)
    assert count_lines_apart("", "a\nb") == (0, 2)


def test_end_of_the_comparison_is_no_difference():
    text = " ".join(map(str, range(3_000)))
    passages, more = find_passages(text, f"new {text}")
    assert ([(passage.words, passage.other_words) for passage in passages], more) == (
        [("", "new")],
        0,
    )
    (first, last), more = find_passages(f"old {text}", " ".join(text.split()[:1_000]))
    assert (first.words, last.words[:9], more) == ("old", "1000 1001", 0)
