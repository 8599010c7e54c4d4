"""The loop of an agent, as docs/PYTHON.md has it, with litellm and a small real model behind a real
server. The model is slow, so prompts are short.
"""

import json
import re
import sys
import threading

import litellm
import pytest

import foldlog
from foldlog.condensers import ESTIMATE
from foldlog.condensers.reports import reports_of
from foldlog.eventstore import CondensationAction, InvalidArgument
from tests.condensers.made import new_history

# litellm uses what pydantic calls deprecated
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_.*fields'")


def ask(server, messages, *, max_tokens=6, **options):
    return litellm.completion(
        model="openai/smollm2",
        api_base=server.base_url,
        api_key="none",
        messages=messages,
        max_tokens=max_tokens,
        max_retries=0,
        timeout=300,
        **options,
    )


def reply_to(history, server):
    """Return the reply, and how often the server said that the prompt was too long."""
    refusals = 0
    while True:
        try:
            return ask(server, history.prepare().to_messages()), refusals
        except litellm.exceptions.BadRequestError as error:
            if not foldlog.is_context_window_error(error):
                raise
            refusals += 1
        history.condense("the prompt was too long")


def fill(history):
    """Append turns whose tokens are nearly all in one report, so that the View is short without it."""
    report = "The train to Rome is late, because a tree fell on the track near Milan. " * 150
    talk(history, "Hello.", report, "Thank you.", "Is it cold?", "Is it far?")
    history.append({"role": "user", "content": "Say: yes."})


def talk(history, *texts):
    for text in texts:
        history.append({"role": "user", "content": text})
        history.append_reply({"role": "assistant", "content": "I see."})


def summarizer(server, **options):
    return {
        "model": "openai/smollm2",
        "base_url": server.base_url,
        "api_key": "none",
        "max_input_tokens": 1_400,
        "max_output_tokens": 24,
        "timeout_s": 300,
        "retries": 0,
        **options,
    }


def test_a_refused_prompt_is_condensed(server):
    with new_history("digest") as history:
        fill(history)
        before = [*history.events()]
        reply, refusals = reply_to(history, server)
        history.append_reply(reply)
        assert refusals == len(history.view().condensations) >= 1
        assert [*history.events()][: len(before)] == before
        assert len(history.view()) < len(before)


def test_the_next_prompt_has_a_cut_reply(server):
    with new_history() as history:
        history.append({"role": "user", "content": "Count: one, two, three"})
        reply = ask(server, history.prepare().to_messages(), max_tokens=3)
        [recorded] = history.append_reply(reply)
        assert recorded.event.meta["finish_reason"] == "length"
        assert recorded.event.meta["usage"]["completion_tokens"] == 3
        history.append({"role": "user", "content": "Go on."})
        messages = history.prepare().to_messages()
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]
        history.append_reply(ask(server, messages, max_tokens=3))
        assert len(history) == 4


def test_a_stream_is_collected_first(server):
    with new_history() as history:
        history.append({"role": "user", "content": "Say: yes."})
        messages = history.prepare().to_messages()
        chunks = [*ask(server, messages, stream=True, stream_options={"include_usage": True})]
        with pytest.raises(InvalidArgument, match="chunk of a stream"):
            history.append_reply(chunks[0])
        assert len(history) == 1
        [recorded] = history.append_reply(litellm.stream_chunk_builder(chunks, messages=messages))
        assert recorded.event.meta["usage"]["completion_tokens"] > 0
        assert history.view().to_messages()[-1]["role"] == "assistant"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_killed_server_costs_only_the_call(server, start_server, is_streamed):
    doomed = start_server()
    with new_history() as history:
        history.append({"role": "user", "content": "Tell a long story."})
        messages = history.prepare().to_messages()
        if is_streamed:
            chunks = ask(doomed, messages, max_tokens=500, stream=True)
            next(chunks)
            doomed.kill()
            with pytest.raises(Exception, match=r"(?i)connection|peer|incomplete|closed"):
                list(chunks)
        else:
            killer = threading.Timer(1, doomed.kill)
            killer.start()
            with pytest.raises(litellm.exceptions.InternalServerError) as caught:
                ask(doomed, messages, max_tokens=500)
            killer.join()
            assert not foldlog.is_context_window_error(caught.value)
        assert len(history) == 1
        history.append_reply(ask(server, history.prepare().to_messages()))
        assert [message["role"] for message in history.view().to_messages()] == [
            "user",
            "assistant",
        ]


def test_a_request_ends_in_a_summary_of_a_small_model_or_a_digest(server):
    model = summarizer(server, max_output_tokens=120)
    condenser = {"type": "llm", "max_size": 6, "keep_first": 1, "llm_config": model}
    with new_history(condenser) as history:
        # a digest, if one takes over, replaces only what is longer
        talk(history, *(f"Train {number} to Rome is late. " * 9 for number in range(4)))
        history.request_condensation("the task is done")
        view = history.prepare()
        [condensation] = history.view().condensations
        assert "Rome" in condensation.summary
        metadata = condensation.metadata
        assert "llm" in (metadata["condenser"], metadata.get("instead_of"))
        assert len(view) <= 6
        history.append_reply(ask(server, view.to_messages()))


def test_an_agent_goes_on_without_its_summarizer(server, start_server):
    gone = start_server()
    gone.kill()
    condenser = {"type": "llm", "max_size": 6, "keep_first": 1, "llm_config": summarizer(gone)}
    with new_history(condenser) as history:
        # a digest replaces only what is longer
        talk(history, *(f"Train {number} to Rome is late. " * 9 for number in range(4)))
        history.request_condensation("the task is done")
        view = history.prepare()
        [condensation] = history.view().condensations
        assert condensation.summary.startswith("# Digest of")
        assert condensation.metadata["instead_of"] == "llm"
        assert len(view) <= 6
        history.append_reply(ask(server, view.to_messages()))


def look(history, number):
    """Append a turn in which the agent reads a file that names its owner and its port."""
    if number % 10 == 9:
        history.append_reply({"role": "assistant", "content": f"Module {number} is checked."})
        history.append(
            {"role": "user", "content": f"Now move folder_{number} to /srv/new{number}."}
        )
        return
    function = {"name": "bash", "arguments": json.dumps({"command": f"cat module_{number}.py"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
    text = f"Owner: ann{100 + number}. Port: {8_000 + number}. The queue is stale, so wait for it."
    history.append_tool_result(f"c{number}", text)


PLANTED = re.compile(r"module_\d+\.py|[Mm]odule \d+|ann\d{3}|\b80\d\d\b|folder_\d+|/srv/new\d+")
"""The facts in the turns of ``look``."""


class Agent:
    """An agent's model with a small window, whose tokens are estimated."""

    model = "an estimate"
    max_input_tokens = 900
    max_output_tokens = 100
    token_sums = ESTIMATE.token_sums


def test_no_worthless_text_of_a_small_model_is_the_only_summary(start_server):
    # A blank line ends a reply: otherwise this model writes until its output limit, and a reply
    # that is cut is not judged. A request makes no step wait after a failure.
    model = summarizer(
        start_server(4_096),
        max_input_tokens=3_500,
        max_output_tokens=250,
        extra={"stop": ["\n\n"]},
    )
    condenser = {"type": "llm", "keep_first": 1, "llm_config": model}
    with new_history(condenser, agent_llm=Agent()) as history:
        history.append({"role": "user", "content": "Find out which module has which owner."})
        for number in range(30):
            if ESTIMATE.token_sums(history.view())[-1] > 600:
                history.request_condensation("this text is judged too")
            view = history.prepare()
            assert ESTIMATE.token_sums(view)[-1] <= 800
            look(history, number)
        events = [*history.events()]
        made = [event for event in events if isinstance(event, CondensationAction)]
        judged = 0
        for event in made:
            text, _, digest = (event.summary or "").partition("# Digest of")
            gone = str([events[first : last + 1] for first, last in event.forgotten.intervals])
            kept = {*PLANTED.findall(text)} & {*PLANTED.findall(gone)}
            problems = [
                str(report["problem"]) for report in reports_of(event) if "problem" in report
            ]
            judged += bool(text) or any("is no summary" in problem for problem in problems)
            sys.stdout.write(f"--- {len(kept)} facts, digest: {bool(digest)}: {text or problems}\n")
            assert kept or digest
        assert judged >= 3
