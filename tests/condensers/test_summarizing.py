"""Strategies that ask a model: when a condensation is due, what the model is asked and what a reply
must be, beside the golden cases of ``test_condensations.py``.
"""

import json
import math
import re
from itertools import accumulate

import pytest

from foldlog.condensers import (
    CONDENSER_METADATA_KEY,
    ESTIMATE,
    InvalidCondenser,
    LLMAttentionCondenser,
    NoCondensationAvailable,
    Reason,
    Requirement,
    Usage,
    reports_of,
)
from foldlog.condensers.base import Overrun
from foldlog.condensers.models.estimate import estimate
from foldlog.condensers.prompts import load_prompt
from foldlog.condensers.prompts.rendering import truncate, unescape
from foldlog.condensers.rolling import ModelUse, model_use
from foldlog.condensers.strategies.model_summaries import (
    LLMSummarizingCondenser,
    StructuredSummaryCondenser,
)
from foldlog.condensers.strategies.parts import size_of
from foldlog.condensers.strategies.state_fields import FIELDS, TOOL_NAME, state_summary_tool
from foldlog.condensers.strategies.summarizing import SummarizingCondenser, Summary, limit_of
from foldlog.eventstore import CondensationSummary
from foldlog.projections import View
from tests.condensers.made import (
    REQUEST,
    after,
    message,
    messages,
    new_history,
    parts_with,
    plan,
    reason_of,
    viewed,
)
from tests.condensers.scripted import (
    FULL_STATE,
    Characters,
    Scripted,
    Weights,
    called,
    failed,
    said,
)
from tests.golden.rows import rows
from tests.said import ids


def llm(*answers, **parameters):
    defaults = {"max_size": 10, "keep_first": 1}
    return LLMSummarizingCondenser(Scripted(*answers), **defaults | parameters)


LONG_VIEW = viewed(messages(11))
"""Has one event more than the size of these condensers."""


# --- what is due ---

TENS = Weights(10, 1)


@pytest.mark.parametrize(
    "events, agent, reasons, requirement",
    [
        (messages(20), None, [], None),
        (messages(21), None, [Reason.EVENTS], Requirement.SOFT),
        ([*messages(3), REQUEST], None, [Reason.REQUEST], Requirement.HARD),
        (messages(11), TENS, [Reason.TOKENS], Requirement.HARD),
        (messages(10), TENS, [], None),  # as many as the limit is fine
        (
            [*messages(21), REQUEST],
            TENS,
            [Reason.REQUEST, Reason.TOKENS, Reason.EVENTS],
            Requirement.HARD,
        ),
        ([message()] * 21, Characters(unknown=True), [Reason.EVENTS], Requirement.SOFT),
    ],
)
def test_reasons_and_requirement_of_a_condensation(events, agent, reasons, requirement):
    condenser = llm(max_size=20, keep_first=2, max_tokens=100)
    view = viewed(events)
    assert condenser.reasons(view, agent) == set(reasons)
    assert condenser.condensation_requirement(view, agent) == requirement


@pytest.mark.parametrize(
    "parameters, problem", rows("settings.json", "sizes that contradict each other")
)
def test_parameters_that_make_no_sense_are_refused(parameters, problem):
    with pytest.raises(InvalidCondenser, match=problem):
        llm(**parameters)


# --- the size of a summary ---


class Shortening(SummarizingCondenser):
    """Its summary can be made one character shorter, again and again."""

    def summary(self, view, span):
        return Summary("x" * 600, shorter=lambda text: text[1:] or None)


class Lengths(Characters):
    """To this model every event is worth 10 tokens, and a summary its characters."""

    def token_sums(self, view):
        sums = [0]
        for event in view:
            sums.append(sums[-1] + (10 if event.id >= 0 else len(event.content)))
        return sums


def test_a_shortened_summary_leaves_a_quarter_free():
    condenser = Shortening(max_size=1000, keep_first=2, max_tokens=100)
    action = plan(condenser.condense(viewed(messages(15)), Lengths()))
    assert (action.metadata["tokens_after"], len(action.summary)) == (75, 35), (
        "40 for head and tail"
    )


class ShorteningToFifty(SummarizingCondenser):
    """Its summary can be made one character shorter, until it has fifty characters."""

    def summary(self, view, span):
        return Summary("x" * 60, shorter=lambda text: text[1:] if len(text) > 50 else None)


class RecordedLengths(Lengths):
    """Records the lengths of the summaries that it counts."""

    def __init__(self):
        super().__init__()
        self.counted = []

    def token_sums(self, view):
        self.counted += [len(event.content) for event in view if event.id < 0]
        return super().token_sums(view)


def test_each_version_of_a_summary_is_counted_once():
    condenser = ShorteningToFifty(max_size=1000, keep_first=2, max_tokens=100)
    counter = RecordedLengths()
    action = plan(condenser.condense(viewed(messages(15)), counter))
    assert len(action.summary) == 50, "no version leaves a quarter free"
    assert counter.counted == list(range(60, 49, -1))


@pytest.mark.parametrize("counter", [Characters(10_000), ESTIMATE])
def test_a_summary_is_shortened_below_what_it_replaces(counter):
    view = viewed(message("a text of seven words, not more") for _ in range(11))
    action = plan(Shortening(max_size=10).condense(view, counter))
    before = action.metadata["tokens_before"]
    length = len(action.summary)
    assert before == counter.token_sums(view)[-1] > action.metadata["tokens_after"]
    assert 0 < length < 600
    assert action.metadata.get("tokens_estimated", False) is (counter is ESTIMATE)


def test_a_large_head_is_not_condensed_for_ever():
    """OpenHands V1 condenses its own summary here, at every step, and the agent never acts."""
    condenser = llm("NEW", max_size=1000, keep_first=4, max_tokens=30)
    view = viewed(messages(6))
    outcomes = []
    while not isinstance(result := condenser.condense(view, TENS), View) and len(outcomes) < 10:
        outcomes.append(plan(result).metadata["outcome"])
        view = after(view, result)
    assert outcomes == ["condensed", "reset"]
    assert ids(view) == [-9]


class Unshortened(SummarizingCondenser):
    """Its summary has 40 characters."""

    def summary(self, view, span):
        return Summary("x" * 40)


@pytest.mark.parametrize("events, is_smaller", [(7, False), (8, True)])
def test_summary_makes_the_prompt_smaller(events, is_smaller):
    """The summary takes the place of 4 or 5 events of 10 tokens each."""
    condenser = Unshortened(max_size=8, keep_first=1)
    view = viewed(messages(events))
    if is_smaller:
        metadata = plan(condenser.get_condensation(view, Lengths())).metadata
        assert (metadata["tokens_before"], metadata["tokens_after"]) == (80, 70)
    else:
        with pytest.raises(NoCondensationAvailable, match="would have 70 tokens, and it has 70"):
            condenser.get_condensation(view, Lengths())


@pytest.mark.parametrize(
    "events, minimum_progress, forgotten", [(8, 0.5, 4), (7, 0.5, None), (5, 0.01, 1)]
)
def test_condensation_may_forget_exactly_the_minimum(events, minimum_progress, forgotten):
    condenser = llm(minimum_progress=minimum_progress)
    view = viewed(messages(events))
    if forgotten:
        action = plan(condenser.get_condensation(view))
        assert len(action.forgotten_event_ids) == forgotten
    else:
        with pytest.raises(NoCondensationAvailable, match="3 of 7 events could be forgotten"):
            condenser.get_condensation(view)


# --- what the model is asked ---


def test_metadata_has_the_hash_of_the_prompt():
    metadata = plan(llm().condense(LONG_VIEW)).metadata
    assert metadata["prompt_sha256"] == load_prompt(metadata["prompt"]).sha256


def test_the_model_sees_texts_of_all_parts():
    parts = [message((part,)) for part in parts_with("first\nof the part").values()]
    condenser = llm()
    condenser.condense(viewed(message(), parts, messages(20)))
    assert condenser.llm.prompt().count("first\nof the part") == len(parts)


@pytest.mark.parametrize(
    "limit, right", [(None, "x" * 50), (-1, "x" * 50), (50, "x" * 50), (3, "xxx"), (0, "")]
)
def test_limits_without_a_note(limit, right):
    assert truncate("x" * 50, limit) == right


@pytest.mark.parametrize(
    "text",
    [
        'a\nb\t"quoted"',
        "C:\\new\\table",
        "\\\\\n\\",
        "\r\b\f\x00\\u0041\x7f é",
        '{"pattern": "\\\\n"}',
    ],
)
def test_unescaped_json_has_the_text(text):
    assert unescape(json.dumps(text, ensure_ascii=False)) == f'"{text}"'
    assert unescape(json.dumps({text: [text]}, ensure_ascii=False)) == f'{{"{text}": ["{text}"]}}'


def test_unescape_leaves_what_is_no_escape():
    assert unescape(r"\d\\\d\n\ud83d\ude00") == "\\d\\\\d\n\U0001f600"


class Narrow(Scripted):
    """Takes so many characters, and says in a summary of what."""

    def __init__(self, room):
        super().__init__()
        self.room = room

    def complete(self, messages, **how):
        prompt = messages[-1]["content"]
        self.calls.append(messages)
        if len(prompt) > self.room:
            raise failed("context_window", "too long")
        return said("of " + " ".join(re.findall(r"\bw\d+\b", prompt)))


def test_long_events_are_summarized_in_parts():
    view = viewed(message(), [message(f"w{n} {'x' * 200}") for n in range(20)])
    condenser = LLMSummarizingCondenser(Narrow(2_500), max_size=20, keep_first=1)
    action = plan(condenser.condense(view))
    assert action.summary == "of " + " ".join(f"w{n}" for n in range(12))
    failures = [report.get("failure") for report in action.metadata[CONDENSER_METADATA_KEY]]
    assert failures == ["context_window", None, None], "one refused call, and a call for each half"


def test_the_longest_events_are_cut_for_parts():
    view = viewed(message(), message("w1 " + "x" * 9_000), messages(19))
    condenser = LLMSummarizingCondenser(Narrow(2_000), max_size=20, keep_first=1)
    action = plan(condenser.condense(view))
    assert action.summary == "of w1"
    calls = range(len(condenser.llm.calls))
    assert any("characters and more left out" in condenser.llm.prompt(call) for call in calls)


def test_parts_are_counted_priced_and_limited():
    view = viewed(message(), [message(f"w{n} {'x' * 2_000}") for n in range(60)])
    for parts in (1, 8):
        condenser = LLMSummarizingCondenser(Narrow(9_000), max_size=20, max_parts=parts)
        action = plan(condenser.condense(view))
        calls = len(condenser.llm.calls)
        refused = [report for report in reports_of(action) if "failure" in report]
        assert action.metadata["parts"] == calls - len(refused) <= parts
        assert action.metadata["cost"] == pytest.approx(0.01 * action.metadata["parts"])
        assert action.summary == "of " + " ".join(f"w{n}" for n in range(1, 53))


CUT = {"finish_reason": "length"}


def test_a_cut_summary_is_continued_once():
    condenser = llm(said("She wants a tr", **CUT), said("ain. No flights."))
    action = plan(condenser.condense(LONG_VIEW))
    assert action.summary == "She wants a train. No flights."
    assert action.metadata["cost"] == 0.02
    assert "cut" not in action.metadata
    assert [message["role"] for message in condenser.llm.calls[1]][-2:] == ["assistant", "user"]
    assert not [report for report in reports_of(action) if "failure" in report]


def test_a_cut_summary_ends_with_a_sentence():
    for second in (said(" No flights. And ho", **CUT), failed("unavailable", "away")):
        condenser = llm(said("She wants a train. By", **CUT), second)
        action = plan(condenser.condense(LONG_VIEW))
        assert action.summary.startswith("She wants a train.")
        assert not action.summary.endswith(("By", "ho"))
        assert action.metadata["cut"] is True
        assert "cut off" in reason_of(action)
        assert len(condenser.llm.calls) == 2
    result, reports = llm(said("no whole sentence", **CUT)).step(LONG_VIEW)
    assert result is LONG_VIEW
    assert ["failure" in report for report in reports] == [False, True], "one failure, two calls"


@pytest.mark.parametrize(
    "second, summary",
    [
        ("ain. No flights.", "She wants a train. By noon the tr|ain. No flights."),
        ("IN 12 goes at noon.", "She wants a train. By noon the tr|IN 12 goes at noon."),
        ("The user asked for a train.", "She wants a train.\n\n|The user asked for a train."),
        ("Élise asked for a train.", "She wants a train.\n\n|Élise asked for a train."),
    ],
)
def test_a_reply_that_begins_anew_is_not_joined_within_a_word(second, summary):
    condenser = llm(said("She wants a train. By noon the tr", **CUT), said(second))
    action = plan(condenser.condense(LONG_VIEW))
    assert action.summary == summary.replace("|", "")


def test_both_calls_of_a_long_summary_cost():
    condenser = llm(said("word " * 9_000, **CUT), "word " * 9_000)
    result, reports = condenser.step(LONG_VIEW)
    assert isinstance(result, View)
    assert ["failure" in report for report in reports] == [False, True]
    assert Usage.of(reports).cost == 0.02


@pytest.mark.parametrize(
    "written, last",
    [
        ('"pending_tasks": "tests. And th', "tests."),
        ('"pending_tasks": "tests", "current_state": "half', "tests"),
        ('"pending_tasks": "tests", "current_sta', "tests"),
        ('"pending_tasks": "- tests [3]\\n- doc', "- tests [3]"),
    ],
)
def test_a_cut_state_has_the_written_fields(written, last):
    arguments = '{"user_context": "a parser.", "completed_tasks": "", ' + written
    reply = called(arguments)
    cut = said(None, tool_calls=reply.tool_calls, **CUT)
    condenser = StructuredSummaryCondenser(Scripted(cut), max_size=10)
    action = plan(condenser.condense(LONG_VIEW))
    assert action.metadata["cut"] is True
    assert "**User Context**: a parser." in action.summary
    assert f"**Pending Tasks**: {last}\n" in action.summary
    assert "half" not in action.summary


def test_each_reset_shows_less_of_each_event():
    condenser = llm(failed("context_window"), max_size=100)
    with pytest.raises(NoCondensationAvailable):
        condenser.condense(viewed(message("x" * 522), REQUEST))
    prompts = [condenser.llm.prompt(n).partition("<EVENT id=0>\n")[2] for n in range(5)]
    lengths = [len(prompt.partition("\n</EVENT>")[0]) for prompt in prompts]
    assert lengths == [528, 422, 337, 269, 215]


def test_a_reset_ends_when_the_model_is_out_of_reach():
    condenser = llm(failed("bad_reply"), failed("timeout"), "in time", fallback=False)
    with pytest.raises(NoCondensationAvailable, match="failed in 2 of at most 5 tries, with 2"):
        condenser.summary_for_reset(LONG_VIEW, slice(1, 9))
    condenser = llm(failed("bad_reply"), failed("refused"), "in time", fallback=False)
    summary = condenser.summary_for_reset(LONG_VIEW, slice(1, 9))
    assert (summary.text, len(summary.reports)) == ("in time", 3)


def test_a_part_that_fails_has_the_reports_of_all_calls():
    condenser = llm(failed("context_window"), "the first part", failed("refused"))
    with pytest.raises(NoCondensationAvailable, match="call failed: boom") as raised:
        condenser.get_condensation(viewed(messages(30)))
    assert [report.get("failure") for report in raised.value.reports] == [
        "context_window",
        None,
        "refused",
    ]


def test_earlier_summaries_alone_have_no_parts():
    condenser = llm(failed("context_window"), "never asked")
    view = viewed([CondensationSummary(content="so far " * 400) for _ in range(9)])
    with pytest.raises(NoCondensationAvailable, match="call failed: boom"):
        condenser.get_condensation(view)
    assert len(condenser.llm.calls) == 1


def test_attention_whose_model_only_calls_tools():
    condenser = LLMAttentionCondenser(Scripted(called("{}")), max_size=8)
    assert plan(condenser.get_condensation(viewed(messages(9)))).forgotten_event_ids


@pytest.mark.parametrize("fallback", [True, False])
def test_attention_without_a_choice_in_a_step_of_a_handler(fallback):
    condenser = LLMAttentionCondenser(Scripted("no choice"), max_size=8, fallback=fallback)
    view = viewed(messages(9))
    alone = plan(condenser.get_condensation(view))
    assert ids(view.then([alone])) == [0, 6, 7, 8]
    token = model_use.set(ModelUse.TRY)
    try:
        if fallback:
            with pytest.raises(NoCondensationAvailable, match="the model chose nothing: "):
                condenser.get_condensation(view)
        else:
            assert plan(condenser.get_condensation(view)).forgotten == alone.forgotten
    finally:
        model_use.reset(token)


def test_a_structured_summary_has_eighteen_fields():
    condenser = StructuredSummaryCondenser(Scripted(called(FULL_STATE)), max_size=10)
    condenser.condense(LONG_VIEW)
    (how,) = condenser.llm.asked_how
    assert how == {"tools": (state_summary_tool(),), "tool_choice": TOOL_NAME}
    function = how["tools"][0]["function"]
    assert function["name"] == TOOL_NAME
    assert list(function["parameters"]["properties"]) == [*FIELDS]
    assert len(FIELDS) == 18
    assert function["parameters"]["required"] == [
        "user_context",
        "completed_tasks",
        "pending_tasks",
    ]


def attention(reply):
    return LLMAttentionCondenser(Scripted(reply), max_size=10, keep_first=1)


def test_attention_asks_with_a_schema():
    condenser = attention('{"ids": [1]}')
    condenser.condense(LONG_VIEW)
    schema = condenser.llm.asked_how[0]["response_schema"]
    assert schema["properties"]["ids"]["items"] == {"type": "integer"}


@pytest.mark.parametrize(
    "kind, ability",
    [(StructuredSummaryCondenser, "function_calling"), (LLMAttentionCondenser, "response_schema")],
)
def test_a_model_without_an_ability_is_refused(kind, ability):
    model = Scripted(**{ability: False})
    with pytest.raises(InvalidCondenser, match=f"has {ability}"):
        kind(model)
    with pytest.raises(InvalidCondenser, match=r"keep_first \(2\)"):
        kind(model, max_size=4, keep_first=2)


# --- a reply is judged before it replaces anything ---


def test_a_reply_that_is_longer_than_the_events_replaces_nothing():
    view = viewed(message(f"fact {n} {'xyz ' * 400}") for n in range(60))
    result, (report,) = llm("word " * 60_000, max_size=40).step(view)
    assert result is view
    assert "of the events that it replaces" in report["problem"]
    assert report["metrics"]["cost"] == 0.01


@pytest.mark.parametrize("odd", [math.inf, math.nan, -1, "many"])
def test_an_odd_figure_is_unknown(odd):
    for usage in (odd, {"total_tokens": odd}):
        reply = said("of w1", usage=usage, cost=odd, latency_s=odd, attempts=odd)
        (report,) = reports_of(llm(reply).step(LONG_VIEW).result.action)
        assert report["metrics"] == {"usage": {}, "cost": None, "latency_s": None, "attempts": 1}


@pytest.mark.parametrize(
    "arguments",
    [dict.fromkeys(FULL_STATE, "x" * 100_000), '{"user_context":' + "[" * 100_000],
    ids=["endless", "a bottomless pit"],
)
def test_an_endless_state_replaces_nothing(arguments):
    condenser = StructuredSummaryCondenser(Scripted(called(arguments)), max_size=10)
    result, (report,) = condenser.step(LONG_VIEW)
    assert result is LONG_VIEW
    assert report["failure"] == "bad_reply"


@pytest.mark.parametrize("reply", ["", "I cannot help", '{"ids": ' + "[" * 100_000])
def test_the_reason_names_a_failed_choice(reply):
    action = plan(attention(reply).condense(LONG_VIEW))
    (report,) = reports_of(action)
    reason = f"View of 11 events exceeded 10; the model failed: {report['problem']}"
    assert reason_of(action) == reason


def test_a_model_that_raises_has_failed():
    def fail():
        raise KeyError("choices")

    model = Scripted(meanwhile=fail)
    result, (report,) = LLMSummarizingCondenser(model, max_size=10, keep_first=1).step(LONG_VIEW)
    assert result is LONG_VIEW
    assert (report["failure"], report["problem"]) == ("bad_reply", "KeyError: 'choices'")


# --- a text of a model above a digest ---


def named(start, stop):
    """Requests that each contain new names, and the agent's answers."""
    asked = [
        message(f"Put part {n} into src/module_{n}.py, port {8000 + n}." + " Please!" * 40)
        for n in range(start, stop)
    ]
    return [*asked, message("done", "agent"), message("go on")]


PREFERS = "She prefers trains to src/module_2.py and src/module_3.py, at port 8003."


def test_a_digest_stands_below_the_text_of_the_model():
    action = plan(llm(PREFERS, digest_length=6_000).condense(viewed(message(), *named(0, 30))))
    text, _, below = action.summary.partition("\n\n# Digest of ")
    assert text == PREFERS
    assert "src/module_27.py, port 8027" in below
    assert action.metadata["condenser"] == "llm"


def test_the_model_does_not_read_the_last_digest():
    second = PREFERS.replace(
        "trains", "buses to src/module_32.py, port 8032, and src/module_33.py, or"
    )
    model = Scripted(PREFERS, second)
    condenser = LLMSummarizingCondenser(model, max_size=20, keep_first=1, digest_length=6_000)
    with new_history(condenser) as history:
        for start in (0, 30):
            history.append([*named(start, start + 30), REQUEST])
            view = history.prepare()
        summary = next(event.content for event in view if event.id < 0)
    assert PREFERS in model.prompt(1)
    assert "# Digest of" not in model.prompt(1)
    text, _, below = summary.partition("\n\n# Digest of ")
    assert text == second
    assert below.startswith("55 events"), "it is made from the log, with the events of the first"


def test_a_digest_does_not_repeat_the_text_above_it():
    second = (
        f"{PREFERS} Then src/module_33.py, src/module_51.py and src/module_52.py, at 8051 and 8052."
    )
    condenser = LLMSummarizingCondenser(
        Scripted(PREFERS, second), max_size=20, keep_first=1, digest_length=1_000
    )
    with new_history(condenser) as history:
        for start in (0, 30):
            history.append([*named(start, start + 30), REQUEST])
            history.prepare()
        summary = history.view().condensations[-1].summary
    text, _, below = summary.partition("\n\n# Digest of ")
    assert text == second
    assert "Earlier summary" not in below
    names = below.partition("## Lines with names")[2]
    assert "src/module_50.py" in names
    assert not re.search("module_5[12]", names)


def test_a_digest_quotes_the_text_above_the_last_digest():
    model = Scripted(PREFERS, failed())
    condenser = LLMSummarizingCondenser(model, max_size=20, keep_first=1, digest_length=6_000)
    with new_history(condenser) as history:
        for start in (0, 30):
            history.append([*named(start, start + 30), REQUEST])
            history.prepare()
        digest = history.view().condensations[-1].summary
    quoted = digest.partition("## Earlier summary\n- ")[2].splitlines()[0]
    assert quoted.startswith(PREFERS)
    assert "Digest of" not in quoted


def test_a_digest_gives_way_to_the_text_of_the_model():
    view = viewed(message(), *named(0, 30))
    sizes = []
    for limit in (4_000, 2_000, 1_000):
        agent = Characters(limit)
        action = plan(llm(PREFERS, digest_length=6_000, max_size=1_000).condense(view, agent))
        assert action.summary.startswith(PREFERS)
        assert agent.token_sums(view.then((action,)))[-1] <= limit
        sizes.append(len(action.summary))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == len(PREFERS)


def test_without_its_model_a_digest_stands_alone():
    with new_history(llm(failed(), digest_length=6_000)) as history:
        history.append([*named(0, 30), REQUEST])
        history.prepare()
        (made,) = history.view().condensations
    assert made.summary.startswith("# Digest of ")
    assert made.metadata["instead_of"] == "llm"


@pytest.mark.parametrize("count", [9, 40])
def test_a_summary_longer_than_what_it_replaces_is_refused(count):
    condenser = LLMSummarizingCondenser(Scripted("word " * 300), max_size=8, keep_first=1)
    view = viewed(*(message("a") for _ in range(count)))
    pattern = rf"with the summary, the View would have 1550 tokens, and it has {7 * count} now; "
    with pytest.raises(NoCondensationAvailable, match=pattern):
        condenser.get_condensation(view, Characters(10_000))


def test_each_try_of_a_hard_reset_sends_shorter_texts():
    """The first try sends whole texts, and each retry cuts the longest of them further."""
    model = Scripted(failed())
    condenser = LLMSummarizingCondenser(
        model, max_size=20, hard_context_reset_context_scaling=0.5, fallback=False
    )
    view = viewed(message("begin"), message("go"), message("k" * 900), message("m" * 60))
    with pytest.raises(NoCondensationAvailable, match="hard context reset failed in 5"):
        condenser.hard_context_reset(view)
    prompts = [str(call) for call in model.calls]
    longest = [prompt.count("k" * 10) * 10 for prompt in prompts]
    assert [prompt.count("m" * 60) for prompt in prompts] == [1, 1, 1, 1, 0]
    assert longest[0] == 900
    assert longest == sorted(longest, reverse=True)
    assert 300 < longest[1] <= 450
    assert longest[-1] <= 60


class Tiny(Narrow):
    """Also knows the size of its window, in tokens."""

    max_input_tokens = 2_500
    max_output_tokens = 100


def test_parts_fit_the_window_with_the_words_of_the_prompt():
    view = viewed(message(), [message(f"w{n} {'x ' * 200}") for n in range(20)])
    wide, tiny = (
        LLMSummarizingCondenser(model, max_size=20, keep_first=1)
        for model in (Narrow(2_500), Tiny(2_500))
    )
    events = view.events[1:15]
    words = estimate(load_prompt(tiny.prompt_file).text)
    assert tiny._room(events, None) == limit_of(tiny.llm) - words < wide._room(events, None)
    assert tiny._room(events[:1], None) == size_of(events[:1], None) * 5 // 8
    assert wide._room(events[:1], None) is None


@pytest.mark.parametrize("third, tail", [(30, 1), (90, 0), (120, 2)])
def test_head_that_exceeds_the_limit_shortens_no_tail(third, tail):
    """The first three events are a whole unit. If they leave room for a summary, the tail gives
    way; if they alone exceed the limit, a shorter tail would be of no use.
    """
    condenser = LLMSummarizingCondenser(Narrow(2_500), max_size=20, keep_first=2)
    sums = [0, 10, 20, third, third + 10, third + 20, third + 30]
    over = Overrun(sums, 100, None)
    assert condenser._tail_by_tokens(viewed(messages(6)), 3, over) == tail


class Thousands(Characters):
    """To this model every event is worth 1,000 tokens, and a summary its characters."""

    def token_sums(self, view):
        tokens = (1_000 if event.id >= 0 else len(event.content) for event in view)
        return [*accumulate(tokens, initial=0)]


@pytest.mark.parametrize("reports", [(), ({"model": "m"},)])
@pytest.mark.parametrize("others, keep_first, fits", [(38_000, 38, 5_000), (19_000, 5, 21_000)])
def test_a_summary_always_has_an_eighth_of_the_limit(others, keep_first, fits, reports):
    """It may take more if the other events leave more room. Only a text of a model is refused."""

    class Writing(SummarizingCondenser):
        length = fits

        def summary(self, view, span):
            return Summary("a b " * (self.length // 4) + "c" * (self.length % 4), reports=reports)

    condenser = Writing(keep_first=keep_first, max_size=1_000, max_tokens=40_000)
    view = viewed(messages(60))
    made = plan(condenser.get_condensation(view, Thousands()))
    assert (len(made.summary), made.metadata["tokens_after"]) == (fits, others + fits)
    Writing.length += 1
    if not reports:
        made = plan(condenser.get_condensation(view, Thousands()))
        assert made.metadata["tokens_after"] == others + fits + 1
        return
    with pytest.raises(
        NoCondensationAvailable,
        match=f"of {fits + 1:,} characters, the prompt would have {others + fits + 1} tokens, and it",
    ):
        condenser.get_condensation(view, Thousands())


@pytest.mark.parametrize("shortest, taken", [(3_000, 5_000), (2_001, 5_000), (2_000, 2_000)])
def test_the_longest_text_is_taken_if_none_leaves_the_room_that_is_wanted(shortest, taken):
    """Beside 38,000 tokens, 2,000 are within the limit, and 5,000 are accepted."""

    class Writing(SummarizingCondenser):
        def summary(self, view, span):
            shorter = {6_000: 5_000, 5_000: 4_000, 4_000: shortest}
            return Summary(
                "x" * 6_000,
                shorter=lambda text: "x" * shorter[len(text)] if len(text) in shorter else None,
            )

    condenser = Writing(keep_first=38, max_size=1_000, max_tokens=40_000)
    made = plan(condenser.get_condensation(viewed(messages(60)), Thousands()))
    assert (len(made.summary), made.metadata["tokens_after"]) == (taken, 38_000 + taken)
