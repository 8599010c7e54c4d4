"""Where a text of a model is a summary, may be one, or is none: each limit from both sides."""

import pytest

from foldlog.condensers import ModelCallFailed
from foldlog.condensers.models.estimate import estimate, event_size
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.reports import DOUBTFUL, NOT_JUDGED
from foldlog.condensers.strategies import summary_check
from foldlog.condensers.strategies.summary_check import Judgement, fit_to_replace, judge_summary
from foldlog.eventstore import CondensationSummary
from tests.condensers.made import message
from tests.condensers.scripted import said

FEW = Judgement(doubt=NOT_JUDGED)
DOUBT = Judgement(doubt=DOUBTFUL)
FINE = Judgement()


def names(*places):
    return [f"x{place:02}" for place in places]


def named(count, plain=0):
    """Return events with a name each, and then events that all say the same."""
    return [message(f"so {name}") for name in names(*range(count))] + [message("so")] * plain


def judged(text, events, **beside):
    return judge_summary(text, events, load_prompt("summary"), **beside)


def lacks(shared, terms):
    return Judgement(f"it has {shared} of the {terms} terms of the events that it replaces")


@pytest.mark.parametrize(
    "terms, shared, judgement",
    [
        (4, [], FEW),
        (5, [], lacks(0, 5)),
        (5, [0], FEW),
        (11, range(11), FEW),
        (12, range(12), FINE),
        (12, [0, 4, 8, 11], DOUBT),
        (12, [0, 4, 6, 8, 11], FINE),
        (39, [7], DOUBT),
        (40, [7, 20], lacks(2, 40)),
        (40, [7, 20, 30], DOUBT),
        (18, range(6), DOUBT),
        (18, [*range(5), 6], FINE),
        (18, range(6, 12), DOUBT),
        (18, range(12, 18), DOUBT),
        (18, [*range(13, 18), 11], FINE),
        (13, range(5), DOUBT),
        (13, [*range(4), 5], FINE),
    ],
    ids=str,
)
def test_a_summary_has_terms_of_several_parts_of_the_events(terms, shared, judgement):
    text = f"and so on, as it is: {' '.join(names(*shared))}"
    assert judged(text, named(terms)) == judgement


def test_events_with_terms_in_one_part_only_have_a_summary_of_this_part():
    events = named(12, plain=24)
    assert judged(" ".join(names(*range(12))), events) == FINE
    assert judged(" ".join(names(*range(12))), [*named(1, plain=23), *named(12)]) == FINE
    assert judged(" ".join(names(*range(7))), [*events, message("so y1y")]) == DOUBT


def test_a_sixth_of_the_words_are_terms():
    words = [f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    text = " ".join(names(0, 4, 6, 8, 11))
    assert judged(f"{text} {' '.join(words[:25])}", named(12)) == FINE
    assert judged(f"{text} {' '.join(words[:26])}", named(12)) == DOUBT


def test_words_that_the_model_read_elsewhere_are_no_terms():
    events = named(16)
    text = " ".join(names(*range(16)))
    assert judged(text, events) == FINE
    for place in (0, 4):
        former = " ".join(names(*range(place)))
        summaries = [CondensationSummary(content=former)]
        for beside in ({"events": [*summaries, *events]}, {"before": [message(former)]}):
            judgement = judged(text, **{"events": events, **beside})
            assert judgement == FINE, "sixteen terms, and twelve without the former ones"
    former = message(" ".join(names(*range(5))))
    assert judged(text, events, before=[former]) == FEW
    assert judged(" ".join(names(*range(5))), events, before=[former]) == lacks(0, 11)
    prompts = load_prompt("summary").text
    assert judged(prompts, [*events, message(prompts)]) == lacks(0, 16)


def test_a_tiny_text_is_less_than_a_hundredth():
    text = " ".join(names(0, 4, 6, 8, 11))
    tokens = estimate(text)
    for times in (2, 40, 200):
        events = [*named(12), *[message("so it is " * 50)] * times]
        replaced = sum(map(event_size, events))
        is_tiny = tokens < min(0.01 * replaced, 64)
        assert is_tiny == (times > 2)
        problem = (
            f"its {tokens} tokens are less than a hundredth of the {replaced} that it replaces"
        )
        assert judged(text, events) == (Judgement(problem) if is_tiny else FINE)
    enough = f"{' '.join(names(*range(29)))}."
    events = [*named(32), *[message("so " * 500)] * 50]
    assert estimate(enough) == 64 < 0.01 * sum(map(event_size, events))
    assert judged(enough, events) == FINE
    assert judged(enough[:-1], events).problem.startswith("its 63 tokens")


def test_a_repetition_adds_no_tokens():
    for text, part in (
        ("", 1),
        ("one", 1),
        ("one two", 1),
        ("a b a b a b", 2 / 5),
        ("a a A a", 1 / 3),
    ):
        assert summary_check._tokens_once(text) == int(estimate(text) * part)


def test_words_have_four_letters_or_three_with_a_digit():
    text = "An oak, x12 X12 12 abcd-efg 用户要求 7001 a_b_c"
    assert [*summary_check._words(text)] == [
        "x12",
        "x12",
        "abcd",
        "用户",
        "户要",
        "要求",
        "7001",
        "a_b_c",
    ]


def test_a_tenth_of_the_events_may_have_a_rare_word():
    few = [{"one", "two"}, {"two"}, {"other"}]
    assert summary_check._rare_words(few) == {"one", "other"}
    many = [{"all", *(["two"] * (n < 2)), *(["three"] * (n < 3))} for n in range(29)]
    assert summary_check._rare_words(many) == {"two"}
    assert summary_check._rare_words([*many, {"all"}]) == {"two", "three"}


def test_a_summary_may_be_as_large_as_its_events():
    events = [message("word " * 1_000)]
    replaced = event_size(events[0])
    reply = said("S")
    texts = ["word " * count for count in range(900, 1_100)]
    sizes = [event_size(CondensationSummary(content=text)) for text in texts]
    assert min(sizes) < replaced < max(sizes)
    for text, size in zip(texts, sizes, strict=True):
        if size <= replaced:
            assert fit_to_replace(reply, text, events) == text
            continue
        problem = f"has about {size} tokens, more than the {replaced} tokens of the events that it"
        with pytest.raises(ModelCallFailed, match=problem):
            fit_to_replace(reply, text, events)


def test_a_summary_of_small_events_may_have_512_tokens():
    texts = ["word " * count for count in range(400, 500)]
    sizes = [event_size(CondensationSummary(content=text)) for text in texts]
    assert min(sizes) < 512 < max(sizes)
    for text, size in zip(texts, sizes, strict=True):
        if size <= 512:
            assert fit_to_replace(said("S"), text, [message()]) == text
            continue
        with pytest.raises(ModelCallFailed, match=f"has about {size} tokens, more than the 12 tok"):
            fit_to_replace(said("S"), text, [message()])


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_blank_text_is_no_summary(text):
    with pytest.raises(ModelCallFailed, match="the reply has no text"):
        fit_to_replace(said("S"), text, [message()])
