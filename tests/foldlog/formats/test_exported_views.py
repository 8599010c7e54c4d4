"""What foldlog itself recorded is exported and imported again: the View is the same, but for what the note names."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foldlog
from foldlog.eventstore import Action, Annotation, CondensationAction, Message, Observation, Retraction, SystemMessage
from foldlog.formats import FORMATS, decode
from foldlog.projections import View, contains, intervals_kept
from tests.how_many import examples

Step = Callable[[foldlog.History, int], Any]

IN_WORDS = ("aider", "chatgpt", "claude-ai")
"""Formats that tell of calls in their own words."""
OTHER_ORDER = ("openhands-v0", "codex", "openai-responses")
"""A summary is elsewhere among what is kept, or calls and results are, whose reply no item tells."""
PLACE, ROLE = "place of a summary among what is kept", "role of a system prompt"
THINKING = ({"type": "thinking", "thinking": "hm", "signature": "s"},)
TOOLS = ("run", "finish", "think", "message", "condensation", "delegate", "null", "recall", "system")
WORD = re.compile(r"word\d{4}x\w*")
NAMES = ("state", "message", "user", "finish", "compacted")


def _text(n: int) -> str:
    """A text that is found alone."""
    return f"word{n:04}x"


def _say(source: Any, image: bool) -> Step:
    def say(history: foldlog.History, n: int) -> None:
        text = _text(n)
        url = f"data:image/png;base64,{b64encode(text.encode()).decode()}"
        parts = ({"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}})
        history.append(Message(source=source, content=parts if image else text))

    return say


def _call(tools: list[str], thought: bool, failed: bool, ids: bool | None) -> Step:
    """The calls of one reply with their results. Without ``ids`` the results name the events; None: ids are empty."""

    def call(history: foldlog.History, n: int) -> None:
        calls = [
            Action(
                tool=tool,
                call_id=f"call {n} {place}" if ids else "" if ids is None else None,
                response_id=f"reply {n}",
                arguments={("message", "thought", "hidden")[place % 3]: f"{_text(n)}{place}", "n": n, "hidden": True},
                thought=f"{_text(n)}t" if thought and not place else "",
                thinking=THINKING if thought and not place else (),
            )
            for place, tool in enumerate(tools)
        ]
        for place, made in enumerate(history.append(calls)):
            history.append(
                Observation(
                    tool=made.event.tool,
                    call_id=made.event.call_id,
                    cause=None if ids is None else made.event.id,
                    content=f"{_text(n)}r{place}",
                    is_error=failed,
                )
            )

    return call


def _reply(history: foldlog.History, n: int) -> None:
    """A reply as a client has it, and its result."""
    function = {"name": "finish", "arguments": json.dumps({"message": f"{_text(n)}m"})}
    call = {"id": f"call {n}", "type": "function", "function": function}
    history.append_reply({"role": "assistant", "content": f"{_text(n)}s", "tool_calls": [call]})
    history.append_tool_result(f"call {n}", f"{_text(n)}r")


def _note(name: str) -> Step:
    data = {"id": "x", "source": "y", "type": "user", "action": "run", "args": {"command": "z"}}
    return lambda history, n: history.append(Annotation(name=name, data=data))


def _condense(first: int, size: int, summarized: bool, as_range: bool) -> Step:
    """Forget some of the View, summaries too, as condensers do."""

    def condense(history: foldlog.History, n: int) -> None:
        cuts = history.view().cut_points[first : first + size + 1]  # no reply is cut in two
        gone = [event.id for event in history.view()[cuts[0] : cuts[-1]]] if cuts else []
        told: dict[str, Any] = {"summary": _text(n), "summary_offset": cuts[0]} if summarized and cuts else {}
        if as_range and gone and min(gone) >= 0:
            ends = {"forgotten_events_start_id": min(gone), "forgotten_events_end_id": max(gone)}
            history.append(CondensationAction(**ends, **told))
        elif gone:
            history.append(CondensationAction(forgotten_event_ids=tuple(gone), **told))

    return condense


def _retract(back: int) -> Step:
    """Take back what came since a message, or the retraction before."""

    def retract(history: foldlog.History, n: int) -> None:
        ids = [each.id for each in history.events() if isinstance(each, Message | Retraction)]
        if len(ids) >= back:
            history.retract(ids[-back])

    return retract


CALLS = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
SAY = st.builds(_say, st.sampled_from(["user", "agent", "environment"]), st.booleans())
CALL = st.builds(_call, CALLS, st.booleans(), st.booleans(), st.sampled_from([True, False, None]))
CONDENSE = st.builds(
    _condense, st.integers(0, 3), st.integers(1, 4), st.sampled_from([True, True, False]), st.booleans()
)
OTHER = st.one_of(
    st.builds(_note, st.sampled_from(NAMES)),
    st.builds(_retract, st.integers(1, 6)),
    st.just(lambda history, n: history.set_attributes(title=_text(n))),
    st.just(lambda history, n: history.request_condensation("for room")),
)
HELLO = _say("user", image=False)
CONDENSED_TWICE = [HELLO, HELLO, HELLO, _condense(1, 1, True, False), HELLO, _condense(1, 2, True, False)]
EMPTY_IDS = [HELLO, _call(["run", "think"], thought=False, failed=False, ids=None)]
FINISHED = [HELLO, _note("state"), _call(["finish"], thought=False, failed=False, ids=True)]
BEGUN_AGAIN = [HELLO, _retract(1), HELLO, HELLO, _condense(0, 1, True, False), _condense(1, 1, True, True)]
AROUND_ATTRIBUTES = [HELLO, lambda history, n: history.set_attributes(a=1), HELLO, HELLO, _condense(0, 2, True, True)]
STEPS = st.lists(st.one_of(SAY, CALL, CONDENSE, SAY, CONDENSE, OTHER, st.just(_reply)), min_size=1, max_size=14)


def told(view: View) -> list[tuple[str, ...]]:
    """What a model is told, in order: each text by who says it, and the calls. Words that a format puts around a text
    do not count.
    """
    lines: list[tuple[str, ...]] = []
    for message in view.to_messages():
        role = message["role"]
        content = message.get("content") or ()
        for part in [{"text": content}] if isinstance(content, str) else content:
            lines += [(role, text) for text in WORD.findall(part.get("text", "")) + ["image"] * ("image_url" in part)]
        for call in message.get("tool_calls", ()):
            lines.append((role, call["function"]["name"], json.dumps(json.loads(call["function"]["arguments"]))))
    return lines


@pytest.mark.parametrize("format", FORMATS)
@examples(100)
@example(steps=CONDENSED_TWICE, prompted=False, forked=True)
@example(steps=[HELLO, HELLO, HELLO, _condense(1, 1, True, False)], prompted=True, forked=False)
@example(steps=EMPTY_IDS, prompted=False, forked=False)
@example(steps=FINISHED, prompted=True, forked=False)
@example(steps=BEGUN_AGAIN, prompted=False, forked=False)
@example(steps=AROUND_ATTRIBUTES, prompted=False, forked=False)
@given(steps=STEPS, prompted=st.booleans(), forked=st.booleans())
def test_what_foldlog_recorded_is_the_same_after_an_export(
    format: str, steps: list[Step], prompted: bool, forked: bool
) -> None:
    notes: list[str] = []
    with foldlog.open("memory:") as histories:
        history = histories["a"]
        if prompted:
            history.append(SystemMessage(content=_text(9999)))
        for n, step in enumerate(steps):
            if forked and n == len(steps) // 2 and len(history):
                history = history.fork(id="b")
            step(history, n)
        records = json.loads(json.dumps(list(history.export(format, notes=notes.append))))
        events, view = list(history.events()), history.view()
    if format == "openhands-v1":
        assert None not in [each for record in records for each in record.get("forgotten_event_ids", ())]
    kept = intervals_kept(events, len(events))
    standing = [each for each in events if contains(kept, each.id)]
    forgets = [each for each in standing if isinstance(each, CondensationAction)]
    said = [each for each in standing if not isinstance(each, CondensationAction | Retraction)]
    found = re.findall(r"(\d+) ([a-z ]+?)s?( of [a-z ]+)?(?= \(|[,;])", " ".join(notes))
    left_out = {noun + of: int(n) for n, noun, of in found}
    uncondensed = View.from_events(each if each in said else Annotation(id=each.id, name="gone") for each in events)
    if left_out.get("condensation"):
        view = uncondensed
    summaries = [] if left_out.get("condensation") else [each.summary for each in forgets if each.summary]
    with foldlog.open("memory:") as histories:
        if records:
            histories.store.ingest("back", decode(records, format))
        back, expected = told(histories["back"].view()), told(view)
        if left_out.get(ROLE):
            expected = [(line[0].replace("system", "user"), *line[1:]) for line in expected]
        if format == "openhands-v0":  # shows the newest summary alone, and no condensation forgets it
            older = {*summaries[:-1], *(summaries if forgets and not forgets[-1].summary else ())}
            back, expected = ([line for line in lines if line[-1] not in older] for lines in (back, expected))
        if left_out.get("image"):
            back, expected = ([line for line in lines if line[-1] != "image"] for lines in (back, expected))
        if format not in IN_WORDS and left_out.get("condensation") in (None, len(forgets)):
            order = sorted if format in OTHER_ORDER or left_out.get(PLACE) else list
            assert order(back) == order(expected)
        texts = {*WORD.findall(repr(told(uncondensed))), *summaries}
        assert sum(not histories.search(text) for text in texts) <= left_out.get("text", 0)
