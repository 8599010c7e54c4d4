"""An agent of many steps beside a model server that fails in one way: a digest takes over. Here is
a sample of few steps; the long test takes 400 steps with each failure.

``scripts/test`` runs this also for the modules ``foldlog.condensers.stepping``,
``foldlog.condensers.handler`` and ``foldlog.condensers.strategies.model_summaries``.
"""

import json
import re
from itertools import pairwise, product

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import foldlog
from foldlog import Message, SystemMessage, otel
from foldlog.condensers import (
    AmortizedForgettingCondenser,
    InvalidCondenser,
    LLMAttentionCondenser,
    LLMSummarizingCondenser,
    NoCondensationAvailable,
    ObservationMaskingCondenser,
    PipelineCondenser,
    RollingCondenser,
    StructuredSummaryCondenser,
    Usage,
    condenser_from_config,
    reports_of,
)
from foldlog.condensers.models.estimate import ESTIMATE
from foldlog.eventstore import CondensationAction, InvalidArgument
from tests.condensers.made import REQUEST, flat, message, messages, new_history, pair, reason_of
from tests.condensers.openai_server import (
    Failure,
    Late,
    OpenAIServer,
    Raw,
    Text,
    ToolCall,
    context_length_exceeded,
)
from tests.condensers.scripted import Scripted, failed, said

LIMIT = 3_000


WAYS = {
    "401": (Failure(401, "bad key"), "rejected"),
    "overflow": (context_length_exceeded(10, 20), "context_window"),
    "500": (Failure(500), "unavailable"),
    "429": (Failure(429, "slow down"), "rate_limited"),
    "cut": (Text("half of a", finish_reason="length"), "bad_reply"),
    "cut call": (
        ToolCall("create_state_summary", '{"user_con', finish_reason="length"),
        "bad_reply",
    ),
    "refusal": (Text(None, refusal="I would rather not"), "refused"),
    "giant": (Text("word " * 300_000), "bad_reply"),
    "null": (Raw(b"null"), "bad_reply"),
}
OF_THE_OTHER = {("llm", "cut call"), ("structured", "cut")}
"""Each condenser has a cut reply of its own."""
AGENTS = sorted({*product(("llm", "structured"), WAYS)} - OF_THE_OTHER)


class Agent:
    """An agent's model whose tokens are estimated, with a limit."""

    model = "an estimate"
    max_input_tokens = LIMIT
    max_output_tokens = None
    token_sums = ESTIMATE.token_sums


@pytest.fixture
def metrics():
    """Reads the metrics of foldlog."""
    reader = InMemoryMetricReader()
    otel.instrument(meter_provider=MeterProvider([reader]))
    yield reader
    otel.uninstrument()


def failures_in(metrics):
    """Return the number of failures in the metric of condensations."""
    (scope,) = metrics.get_metrics_data().resource_metrics[0].scope_metrics
    (metric,) = (metric for metric in scope.metrics if metric.name == "foldlog.condensations")
    return sum(
        point.value
        for point in metric.data.data_points
        if point.attributes["foldlog.outcome"] == "failed"
    )


def append_step(history, number):
    """Append the agent's turn: a call with a long result, and sometimes a message of the user."""
    if number % 9 == 8:
        history.append_reply({"role": "assistant", "content": f"I looked at folder {number}."})
        history.append(Message(source="user", content=f"Go on with folder {number + 1}."))
        return
    function = {"name": "ls", "arguments": json.dumps({"path": f"/d{number}"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
    for open_call in history.open_calls():
        text = " ".join(f"file{number * 7 + place}.py" for place in range(25))
        history.append_tool_result(open_call, text)


def summarizer_at(server, kind):
    model = server.llm("openai/gpt-4o-mini", retries=0, function_calling=True)
    return condenser_from_config({"type": kind, "llm_config": model.config})


def run_agent(server, kind, steps):
    """Return the history of an agent whose View fitted at each of its steps."""
    agent = Agent()
    histories = foldlog.open("memory:", condenser=summarizer_at(server, kind), agent_llm=agent)
    history = histories["c1"]
    history.append(SystemMessage(content="You are a helpful agent."))
    history.append(Message(source="user", content="Which file is largest?"))
    for number in range(steps):
        view = history.prepare()
        assert agent.token_sums(view)[-1] <= LIMIT
        assert view.to_messages()
        append_step(history, number)
    return history


def check_agent(kind, way, steps, caplog, metrics):
    answer, failure = WAYS[way]
    with OpenAIServer(answer) as server:
        history = run_agent(server, kind, steps)
    made = list(history.view().condensations)
    assert made
    kinds = {(event.metadata["condenser"], event.metadata["outcome"]) for event in made}
    assert kinds == {("digest", "condensed")}
    assert all(event.summary.startswith("# Digest of") for event in made)
    failed = [event for event in made if any("failure" in report for report in reports_of(event))]
    assert failed[0] is made[0]
    for event in made:
        assert event.metadata["instead_of"] == condenser_from_config({"type": kind}).type
        assert reason_of(event).count("the model failed") == (event in failed)
        assert reason_of(event).count("a digest took the place") == 1
    reports = [report for event in failed for report in reports_of(event)]
    failures = [report["failure"] for report in reports if "failure" in report]
    assert set(failures) == {failure}
    calls = Usage.of(reports).attempts
    records = [record for record in caplog.records if record.name == "foldlog.condensation.failed"]
    assert len(records) == failures_in(metrics) == len(failed)
    assert {record.failure for record in records} == {failure}
    assert calls == len(server.requests) < len(made) + 10
    return made, failed


@pytest.mark.parametrize(
    "kind, way", [("llm", "401"), ("structured", "null"), ("llm", "cut"), ("llm", "overflow")]
)
def test_an_agent_continues_with_digests(kind, way, caplog, metrics):
    made, failed = check_agent(kind, way, 40, caplog, metrics)
    assert len(failed) < len(made), "the model was not asked each time"


@pytest.mark.long
@pytest.mark.parametrize("kind, way", AGENTS)
def test_an_agent_continues_for_400_steps(kind, way, caplog, metrics):
    check_agent(kind, way, 400, caplog, metrics)


# --- one step ---


def stepped(condenser, *events, agent=None):
    """Return a history with these events, and the View that its next step prepared."""
    history = foldlog.open("memory:", condenser=condenser, agent_llm=agent)["c1"]
    history.append(flat(*events))
    return history, history.prepare()


def test_a_digest_replaces_the_same_events():
    asked = [*messages(30), REQUEST]
    spans = []
    for reply in ("a summary", failed("unavailable")):
        history, _ = stepped(LLMSummarizingCondenser(Scripted(reply), max_size=20), *asked)
        (made,) = history.view().condensations
        spans.append((*made.forgotten, made.summary_offset))
    assert spans[0] == spans[1]
    assert made.summary.startswith("# Digest of")
    assert reason_of(made) == (
        "View of 30 events exceeded 20, asked for; the model failed: boom; a digest took the place"
        " of the condenser llm"
    )


@pytest.mark.parametrize(
    "status, failure", [(408, "timeout"), (504, "timeout"), (404, "rejected"), (None, "bad_reply")]
)
def test_the_status_of_an_error_names_the_failure(status, failure):
    class StatusError(Exception):
        status_code = status

    def refuse():
        raise StatusError

    model = Scripted(meanwhile=refuse)
    history, _ = stepped(LLMSummarizingCondenser(model, max_size=20), *messages(30), REQUEST)
    (made,) = history.view().condensations
    assert [report["failure"] for report in reports_of(made)] == [failure]


def test_a_digest_below_a_summary_has_room():
    with pytest.raises(InvalidCondenser, match=r"digest_length .499. must be 0.* at least 500"):
        LLMSummarizingCondenser(Scripted("a summary"), digest_length=499)
    assert LLMSummarizingCondenser(Scripted("a summary"), digest_length=500).digest_length == 500


def test_without_a_fallback_the_step_fails():
    condenser = LLMSummarizingCondenser(Scripted(failed()), max_size=20, fallback=False)
    for used in (condenser, PipelineCondenser([condenser])):
        with pytest.raises(NoCondensationAvailable, match="hard context reset failed in 5"):
            stepped(used, *messages(30), REQUEST)


def test_without_a_fallback_a_text_that_says_nothing_is_none():
    model = Scripted(said("I'm sorry, but I can't help with that."))
    condenser = LLMSummarizingCondenser(model, max_size=20, fallback=False)
    with pytest.raises(NoCondensationAvailable, match="hard context reset failed in 5"):
        stepped(condenser, *worked(), REQUEST)


class Choosing(RollingCondenser):
    """A strategy of one's own, which asks a model that fails."""

    type = "choosing"
    asks_a_model = True

    def get_condensation(self, view):
        raise NoCondensationAvailable("no choice", (failed().report,))


@pytest.mark.parametrize(
    "condenser",
    [
        LLMAttentionCondenser(Scripted(failed()), max_size=20),
        LLMAttentionCondenser(Scripted(failed()), max_size=4, keep_first=1),
        Choosing(),
        PipelineCondenser([ObservationMaskingCondenser(2), Choosing()]),
        PipelineCondenser([LLMSummarizingCondenser(Scripted(failed()), max_size=20)]),
    ],
    ids=["attention", "attention to few events", "own", "a pipeline with its own", "a pipeline"],
)
def test_every_strategy_with_a_model_has_a_fallback(condenser):
    history, _ = stepped(condenser, pair(1), messages(40), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert made.summary.startswith("# Digest of")
    assert [report["failure"] for report in reports_of(made) if "failure" in report] == ["refused"]
    assert history.view().unhandled_condensation_request is False


WORTHLESS = {
    "a refusal": "I'm sorry, but I can't help with that.",
    "an understanding": "Understood.",
    "a question": "What would you like me to summarize? Please paste the conversation.",
    "a rule": "This content may violate the policies of usage. I must stop right here, and say no more.",
    "a refusal in German": "Dabei kann ich leider nicht helfen. Bitte wenden Sie sich an jemand anderen.",
    "a refusal in Chinese": "抱歉，我无法协助完成这个请求，请换一个话题再试一次，谢谢您的理解与支持。",
    "a long refusal": "Unfortunately there is nothing that an assistant such as this one could do. "
    * 8,
    "one word": "the " * 600,
    "a lesson": "{C2: 0.0} is a classic example of a non-repeating character of a sequence. " * 4,
    "a greeting": "Hello there! How may I be of assistance on this wonderful day, dear friend?",
}
"""What models answered where a summary was wanted."""


def worked():
    """A run in which an agent looks at folders. Each folder has different files."""
    for number in range(30):
        files = " ".join(f"module_{number * 9 + place}.py" for place in range(9))
        yield from pair(number, content=f"{files}\nowner ann{number}, port {8000 + number}")
        if number % 10 == 5:
            yield message(f"Move the harbour folder {number} to /srv/data{number}, please.")
    yield message("I looked at them.", source="agent")
    yield message("Go on.")


@pytest.mark.parametrize("kind", [LLMSummarizingCondenser, LLMAttentionCondenser])
@pytest.mark.parametrize("text", WORTHLESS.values(), ids=WORTHLESS)
def test_a_text_that_says_nothing_is_no_summary(text, kind):
    history, _ = stepped(kind(Scripted(said(text)), max_size=20), *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert "/srv/data5" in made.summary
    (report,) = (report for report in reports_of(made) if "failure" in report)
    assert report["failure"] == "bad_reply"
    assert report["metrics"]["cost"] == 0.01
    assert len(report["problem"]) < 200


@pytest.mark.parametrize(
    "text",
    [
        "The agent looked at 30 folders. ann7 owns port 8007; the harbour folder 5 goes to /srv/data5.",
        "用户要求把 harbour 移到 /srv/data5；ann3 使用端口 8003，module_17.py 已经检查过。",
        "Der Agent hat module_1.py bis module_200.py gelesen. ann12 hat Port 8012, ann13 8013. /srv/data15 ist Ziel.",
    ],
)
def test_a_short_summary_in_any_language_is_one(text):
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.summary == text


def counted_tickets(count, step=1):
    """A run in which few words are rare: the number of a ticket in each result, or in every third."""
    for number in range(count):
        name = "ticket" if number % step else f"ticket {100 + number}"
        yield from pair(number, content=f"{name} is open " * 5)
    yield message("I looked at them.", source="agent")
    yield message("Go on.")


def looked_again():
    """A run that names again what ``worked`` named, among new files."""
    for number in range(30):
        content = f"owner ann{number}, port {8000 + number}, in part_{number}.py of team{number}"
        yield from pair(number, content=content)
    yield message("I looked at them again.", source="agent")
    yield message("Go on.")


@pytest.mark.parametrize("newer", [[*counted_tickets(60)], [*looked_again()]])
def test_an_earlier_summary_that_is_repeated_is_none_of_newer_events(newer):
    owners = (f"ann{number} owns port {8000 + number}" for number in (3, 7, 11, 14, 18))
    text = f"{', '.join(owners)}. The harbour folder 5 goes to /srv/data5."
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *worked(), REQUEST)
    history.append(flat(*newer))
    history.request_condensation()
    history.prepare()
    made = (event for event in history.events() if isinstance(event, CondensationAction))
    first, second = made
    assert first.summary == text
    assert second.metadata["condenser"] == "digest"
    assert "terms of the events that it replaces" in reports_of(second)[0]["problem"]


def test_a_request_that_is_repeated_is_no_summary_of_the_work():
    request = "Look whether ann7 still owns port 8007, and ann9 port 8009, in module_64.py. " * 4
    condenser = LLMSummarizingCondenser(
        Scripted(said(request)), prompt="continue", max_size=20, keep_first=1
    )
    history, _ = stepped(condenser, message(request), *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert "terms of the events that it replaces" in reports_of(made)[0]["problem"]


@pytest.mark.parametrize("text", WORTHLESS.values(), ids=WORTHLESS)
def test_a_summary_of_events_with_few_terms_has_one_of_them(text):
    asked = [*counted_tickets(30), REQUEST]
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *asked)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert "it has 0 of the 27 terms" in reports_of(made)[0]["problem"]
    honest = "Tickets 102, 103, 107, 111, 114 and 119 are open; 103 was looked at last."
    condenser = LLMSummarizingCondenser(Scripted(said(honest)), max_size=20)
    history, _ = stepped(condenser, *asked)
    (made,) = history.view().condensations
    assert made.summary == honest
    apology = "Tickets 103, 110 and 117 are nothing that an assistant can help with."
    condenser = LLMSummarizingCondenser(Scripted(said(apology)), max_size=20)
    history, _ = stepped(condenser, *asked)
    (made,) = history.view().condensations
    assert made.summary.startswith(f"{apology}\n\n# Digest of")


@pytest.mark.parametrize("text", ["They greeted each other.", "the " * 600])
def test_a_text_without_any_of_nine_terms_is_no_summary(text):
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *counted_tickets(30, step=3), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert "it has 0 of the 9 terms" in reports_of(made)[0]["problem"]


@pytest.mark.parametrize(
    "text, events",
    [
        (
            "They greeted each other.",
            [*messages(9), message("so on we go " * 200), *messages(9)],
        ),
        ("the " * 600, [*messages(9), message("so on we go " * 200), *messages(9)]),
        (
            "Ticket 103 is open; the agent looked at it, and goes on with all the others.",
            [*counted_tickets(30, step=3)],
        ),
    ],
)
def test_a_digest_stands_below_a_summary_that_cannot_be_judged(text, events):
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *events, REQUEST)
    (made,) = history.view().condensations
    assert made.summary.startswith(f"{text}\n\n# Digest of")
    assert (made.metadata["condenser"], made.metadata["not_judged"]) == ("llm", True)


PARTIAL = {
    "the beginning of the events": "\n".join(
        " ".join(f"module_{9 * number + place}.py" for place in range(9))
        + f"\nowner ann{number}, port {8000 + number}"
        for number in range(1, 4)
    ),
    "the newest result": " ".join(f"module_{place}.py" for place in range(234, 243))
    + "\nowner ann26, port 8026",
    "an apology with names": "I apologize for the confusion about module_70.py, ann20 and port 8011."
    " Perhaps somebody else could help with such matters much better than an assistant, so feel"
    " free to contact the support team, who usually answers within several hours. Meanwhile, kindly"
    " review our terms, consider rephrasing what was wanted, and remember that mistakes happen.",
    "a summary of other work": "The customer Hollander wants invoices in three currencies. The"
    " agent added tables for exchange rates, wrote a migration, and found that rounding differs"
    " between Paris and London. Open: the report for March, the owner of the ledger (perhaps ann9"
    " or ann21), and whether port 8004 of the bank stays. No decision about discounts was made.",
}
"""Texts with terms of the events, which stand for a part of them, or for none."""


@pytest.mark.parametrize("text", PARTIAL.values(), ids=PARTIAL)
def test_a_digest_stands_below_a_text_that_says_little_of_the_events(text):
    condenser = LLMSummarizingCondenser(Scripted(said(text)), max_size=20)
    history, _ = stepped(condenser, *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.summary.startswith(f"{text}\n\n# Digest of")
    assert "/srv/data5" in made.summary


def test_what_a_text_repeats_counts_once():
    apology = (
        "I am confused about module_70.py, ann20 and port 8011. " + "What shall I do now? " * 40
    )
    condenser = LLMSummarizingCondenser(Scripted(said(apology)), max_size=20)
    history, _ = stepped(condenser, *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert "less than a hundredth" in reports_of(made)[0]["problem"]


def test_a_digest_replaces_a_summary_without_an_end():
    cut = said("The agent read module_1.py. Then ann7 moved the", finish_reason="length")
    history, _ = stepped(LLMSummarizingCondenser(Scripted(cut), max_size=20), *worked(), REQUEST)
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert [report.get("failure") for report in reports_of(made)] == [None, "bad_reply"]


def test_failed_calls_are_counted_for_the_condenser_that_made_them():
    history, _ = stepped(
        LLMSummarizingCondenser(Scripted(failed("refused")), max_size=20), *messages(30), REQUEST
    )
    by_strategy = history.stats().condensations
    assert (by_strategy["digest"].made, by_strategy["digest"].failed) == (1, 0)
    assert by_strategy["digest"].cost == 0
    assert (by_strategy["llm"].made, by_strategy["llm"].failed) == (0, 1)


def test_why_names_the_failure():
    history, _ = stepped(
        LLMSummarizingCondenser(Scripted(failed("refused", "no such thing")), max_size=20),
        *messages(30),
        REQUEST,
    )
    reason = history.why(3).reason
    assert "the model failed: no such thing; a digest took the place of the condenser llm" in reason


def test_a_runtime_limits_the_wait_for_a_model():
    with (
        OpenAIServer(Late(30, Text("too late"))) as server,
        new_history(
            LLMSummarizingCondenser(server.llm("openai/gpt-4o-mini", retries=0), max_size=20)
        ) as history,
    ):
        history.append([*messages(30), REQUEST])
        history.prepare(wait_s=0.3)
        (made,) = history.view().condensations
        (report,) = reports_of(made)
        assert (made.metadata["condenser"], report["failure"]) == ("digest", "timeout")
        for wrong in (0, -1, True, "1"):
            with pytest.raises(InvalidArgument, match="wait_s must be a number of seconds"):
                history.step(wait_s=wrong)


def test_giant_texts_are_shortened_beside_a_digest():
    agent = Agent()
    condenser = LLMSummarizingCondenser(Scripted(failed()), max_size=20)
    long = "word " * 20_000
    for giant in (pair(1, content=long), pair(1, text=long, path="a.py"), message(long)):
        _, view = stepped(condenser, messages(30), giant, agent=agent)
        assert agent.token_sums(view)[-1] <= LIMIT
        assert "characters and more left out; the log has all" in str(view.to_messages())


class Doubtful(Scripted):
    """Answers with three names of its prompt, among words that say nothing."""

    def complete(self, messages, **how):
        names = re.findall(r"file\d+\.py", messages[-1]["content"])
        self.answers = (f"Shall I go on with {', '.join(names[-3:])}? {'I am not sure. ' * 9}",)
        return super().complete(messages, **how)


@pytest.mark.parametrize("model", [Scripted(failed()), Doubtful()], ids=["failed", "doubtful"])
def test_required_condensations_also_spare_a_failed_model(model):
    agent = Agent()
    condenser = LLMSummarizingCondenser(model)
    history = foldlog.open("memory:", condenser=condenser, agent_llm=agent)["c1"]
    history.append(Message(source="user", content="Which file is largest?"))
    versions = []
    for number in range(60):
        calls = len(model.calls)
        history.prepare()
        if len(model.calls) > calls:
            versions.append(len(history))
        append_step(history, number)
    made = list(history.view().condensations)
    assert len(made) > len(versions)
    assert all(event.summary.count("# Digest of") == 1 for event in made)
    waits = [later - earlier for earlier, later in pairwise(versions)]
    assert len(waits) > 1
    assert all(wait >= least for wait, least in zip(waits, (20, 40, 80), strict=False))
    history.request_condensation()
    history.prepare()
    assert len(model.calls) == len(versions) + 1, "a request does not wait"


def test_a_digest_replaces_a_summary_without_room():
    agent = Agent()
    condenser = LLMSummarizingCondenser(Scripted(said("A sentence of the summary. " * 1_500)))
    seen = (message("I read it.", source="agent"), message("Go on."))
    history, view = stepped(
        condenser, message(), pair(1, content="a line " * 9_000), *seen, agent=agent
    )
    assert agent.token_sums(view)[-1] <= LIMIT
    (made,) = history.view().condensations
    (report,) = reports_of(made)
    assert (made.metadata["condenser"], report["failure"]) == ("digest", "bad_reply")
    assert "40,500 characters" in report["problem"]
    assert report["metrics"]["cost"] == 0.01


def turns(count, words):
    """Return calls with results of so many words, all seen by the model, and a message."""
    calls = [pair(number, content=f"file{number} " * words) for number in range(count)]
    return (message(), *calls, message("I read them.", source="agent"), message("Go on."))


@pytest.mark.parametrize(
    "condenser",
    [
        LLMAttentionCondenser(Scripted(json.dumps({"events": []})), max_size=100),
        LLMAttentionCondenser(Scripted(failed("unavailable")), max_size=100),
        AmortizedForgettingCondenser(),
        PipelineCondenser([ObservationMaskingCondenser(40), AmortizedForgettingCondenser()]),
    ],
    ids=["attention", "attention without a model", "forgetting", "a pipeline"],
)
def test_a_digest_replaces_what_shorter_texts_cannot(condenser):
    agent = Agent()
    history, view = stepped(condenser, *turns(20, 100), agent=agent)
    assert agent.token_sums(view)[-1] <= LIMIT
    (made,) = history.view().condensations
    assert made.metadata["condenser"] == "digest"
    assert reason_of(made).endswith(f"a digest took the place of the condenser {condenser.type}")


def test_a_masking_condenser_has_no_digest():
    with pytest.raises(NoCondensationAvailable, match="may have 3000 tokens"):
        stepped(ObservationMaskingCondenser(100), *turns(40, 200), agent=Agent())


@pytest.mark.parametrize(
    "kind", [LLMSummarizingCondenser, StructuredSummaryCondenser, LLMAttentionCondenser]
)
@pytest.mark.parametrize("in_pipeline", [False, True])
def test_a_digest_holds_the_default_limit(kind, in_pipeline):
    model = Scripted(failed("unavailable"))
    condenser = kind(model, max_size=20)
    if in_pipeline:
        condenser = PipelineCondenser([ObservationMaskingCondenser(5), condenser])
    history, _ = stepped(condenser, *turns(20, 100))
    assert not history.view().condensations, "a small View can wait"
    history.append(flat(*turns(60, 300)))
    view = history.prepare()
    assert ESTIMATE.token_sums(view)[-1] < 32_000
    (made,) = history.view().condensations
    assert (made.metadata["condenser"], made.metadata["instead_of"]) == ("digest", condenser.type)


def test_a_view_below_its_limit_waits():
    model = Scripted(failed("unavailable"))
    condenser = LLMSummarizingCondenser(model, max_size=20, max_tokens=200_000)
    history, _ = stepped(PipelineCondenser([condenser]), *turns(60, 300))
    assert not history.view().condensations
