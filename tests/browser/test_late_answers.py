"""Answers of the server that come late, in another order than they were asked for, or not at all."""

import json

import pytest

from tests.browser.states import V
from tests.browser.task_store import TASK, write_task
from tests.said import said

HOLD = """
(object, name) => {
  window.held = [];
  object[name] = () => new Promise((answer, fail) => window.held.push({ answer, fail }));
}
"""


def hold(page, holder, name):
    """Let the calls of a function wait. ``window.held`` has for each call the functions ``answer``
    and ``fail``.
    """
    page.ask(f"({HOLD})({holder}, {json.dumps(name)})")


@pytest.fixture
def reported(page, report):
    """The page of a report."""
    page.open(report([said("one"), said("two")]))
    return page


@pytest.fixture
def served(page, serve, stored):
    """The page of a served conversation."""
    page.open(f"{serve(stored('c', [said('one'), said('two')]))}&id=c")
    page.wait(f"{V}.marks && {V}.history.models")
    return page


@pytest.fixture
def task(page, serve, tmp_path):
    """The page of a task with sub-agents."""
    write_task(tmp_path / "task.db")
    page.open(f"{serve(f'sqlite:///{tmp_path}/task.db')}&id={TASK}#tab=transcript")
    page.wait(f"{V}.agents.task && document.querySelector('details.sub-agent')")
    return page


def test_a_text_from_before_a_redaction_is_not_used(reported):
    hold(reported, f"{V}.source", "events")
    reported.ask(f"{V}.transcript.forget()")
    reported.ask(f"void {V}.transcript.load(0)")
    reported.ask(f"{V}.transcript.forget()")
    reported.run("window.held[0].answer([{ id: 0, content: 'a secret' }])")
    assert reported.ask(f"{V}.transcript.texts.size") == 0


def test_the_answer_to_the_later_load_stays(reported):
    hold(reported, f"{V}.source", "dropped")
    reported.ask(f"void {V}.loadBeside()")
    reported.ask(f"void {V}.loadBeside()")
    reported.run("window.held[1].answer([{ condensation: 1, terms: [] }])")
    reported.run("window.held[0].answer([])")
    assert reported.ask(f"{V}.marks.needed.size") == 1


def test_a_changed_note_stays(reported):
    hold(reported, f"{V}.source", "notes")
    reported.ask(f"void {V}.loadBeside()")
    reported.ask(f"{V}.notes.all = [{{ event: null, text: 'newer' }}]")
    reported.run("window.held[0].answer([])")
    assert reported.ask(f"{V}.notes.all[0].text") == "newer"


def test_a_note_that_the_browser_does_not_store_is_a_problem(reported):
    reported.ask("Storage.prototype.setItem = () => { throw new Error('full') }")
    reported.click(".noting button", "Keep")
    reported.wait("document.querySelector('.noting .problem').innerText")
    assert "this browser stores nothing more" in reported.text(".noting .problem")
    assert reported.ask(f"{V}.notes.all") == []


def test_a_failed_search_for_earlier_words_is_no_problem(reported):
    hold(reported, f"{V}.source", "search")
    for words in ("one", "two"):
        reported.ask(f"void {V}.find({json.dumps(words)})")
    reported.run("window.held[1].answer()")
    reported.run("window.held[0].fail(new Error('too late'))")
    assert reported.ask(f"[{V}.problem, {V}.searched]") == [None, True]


def test_what_failed_is_loaded_when_the_server_answers_again(served):
    hold(served, f"{V}.source", "dropped")
    served.ask(f"void {V}.loadBeside()")
    served.run("window.held[0].fail(new Error('no answer'))")
    assert served.text(".live") == "not live"
    served.run(f"{V}.follow({V}.present)")
    assert served.text(".live") == "live"
    assert served.ask("window.held.length") == 2


def test_texts_that_failed_are_loaded_when_the_server_answers_again(served):
    served.ask(f"{V}.showPage('transcript')")
    served.ask(f"{V}.source.events = async () => {{ throw new Error('no answer') }}")
    served.run(f"{V}.transcript.forget(); {V}.transcript.open({V}.history)")
    assert served.ask("document.querySelectorAll('.block-of .waiting').length") == 2
    served.ask(f"delete {V}.source.events")
    served.ask(f"{V}.follow({V}.present)")
    served.wait("!document.querySelector('.block-of .waiting')")


GIVEN_UP = """
window.streams = 0;
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 2;
  constructor() {
    super();
    window.streams += 1;
    setTimeout(() => this.dispatchEvent(new Event("error")));
  }
  close() {}
};
"""
"""A browser that gives up every stream, as it does after an answer that is no stream."""


def test_a_stream_that_the_browser_gave_up_is_opened_again(served):
    served.ask(GIVEN_UP)
    served.ask(f"{V}.source.follow({{ changed() {{}}, connected() {{}}, gone() {{}} }})")
    served.wait("window.streams > 1")


def test_the_page_of_an_erased_conversation_opens_no_stream_again(served):
    served.ask(GIVEN_UP)
    served.ask(
        f"{V}.source.events = async () => {{ throw Object.assign(new Error('erased'), {{ status: 410 }}) }}"
    )
    served.ask(
        f"{V}.source.follow({{ changed() {{}}, connected() {{}}, gone: (why) => (window.why = why) }})"
    )
    served.wait("window.why === 'erased'")
    served.ask("new Promise((resolve) => setTimeout(resolve, 1200))")
    assert served.ask("window.streams") == 1


def test_an_answer_about_an_earlier_text_is_not_shown(task):
    hold(task, "window", "fetch")
    for words in ("first", "second"):
        task.ask(f"{V}.agents.box.value = {json.dumps(words)}")
        task.ask(f"void {V}.agents.askAbout({{ preventDefault() {{}} }})")
    task.ask("window.held[1].answer(new Response(JSON.stringify({ agents: [] })))")
    task.wait(f"!{V}.agents.found.innerText.includes('Asking')")
    before = task.ask(f"{V}.agents.found.innerHTML")
    task.run("window.held[0].fail(new Error('too late'))")
    assert task.ask(f"{V}.agents.found.innerHTML") == before


@pytest.mark.parametrize(
    "cost, words",
    [
        ("null", "4 sub-agents, 2 errors, 2 no longer reached, 9 m 36 s of work"),
        ("1", "4 sub-agents, 2 errors, $1.00, 2 no longer reached, 9 m 36 s of work"),
    ],
)
def test_sums_of_a_task_have_no_empty_part(task, cost, words):
    task.ask(
        f"{V}.agents.take({{ ...{V}.agents.task, erased: [], sub_agents_unreached: 2,"
        f" spent: {{ ...{V}.agents.task.spent, cost: {cost} }},"
        f" agents: {V}.agents.task.agents.map((agent) => ({{ ...agent, spent: null }})) }})"
    )
    assert words in task.text(".agents summary")


def test_the_run_of_a_sub_agent_is_loaded_again(task):
    task.ask(f"{V}.source.ask = async () => {{ throw new Error('no answer') }}")
    task.ask("document.querySelector('details.sub-agent').open = true")
    task.wait("document.querySelector('.run-of .problem')?.innerText === 'no answer'")
    task.ask(f"delete {V}.source.ask")
    task.ask(
        "Array.from(document.querySelectorAll('.run-of .more')).find((one) => one.innerText ==="
        " 'Try again').click()"
    )
    task.wait("document.querySelector('.run-of p b')")
    assert task.ask("document.querySelectorAll('.run-of .problem').length") == 0
