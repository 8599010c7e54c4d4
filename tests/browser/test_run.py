"""A run as text: blocks, marks, notes and what the model knew, in a real browser."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from foldlog.eventstore import Action, Annotation, CondensationAction, Retraction
from tests.browser.states import V, sample
from tests.foldlog.records import GOLDEN
from tests.golden.rows import made_events
from tests.page_samples import hostile_history
from tests.said import replied, said

BLOCKS = "document.querySelectorAll('.transcript [data-event]')"
READY = f"{BLOCKS}.length && !document.querySelector('.block-of .waiting')"
START = datetime(2026, 3, 4, 9, tzinfo=UTC)
FAILING = GOLDEN / "failing_run.json"
NOTE = "look <img src=x onerror='window.attacked = 1'><script>window.attacked = 1</script> here"


@pytest.fixture
def page(chromium, serve):
    with chromium.new_page(tab="transcript") as opened:
        yield opened


def at(seconds):
    return START + timedelta(seconds=seconds)


def failing():
    """A run with two errors, a wait of ten minutes, and a file that is needed again after it was
    forgotten.
    """
    return [*made_events(json.loads(FAILING.read_text("utf-8")))]


def opened(page, url):
    page.open(url)
    page.wait(READY)
    page.settle()


def is_in_sight(page, event):
    boxes = f"""[{V}.transcript.node, {V}.transcript.nodes.get({V}.transcript.placeOf({event}))].map((each) => each.getBoundingClientRect())"""
    return page.ask(
        f"(([all, one]) => one.top < all.bottom - 40 && one.bottom > all.top + 20)({boxes})"
    )


def block(page, event):
    return " ".join(page.text(f'.transcript [data-event="{event}"]').split())


def test_approvals_are_sentences(page, report):
    """As ``foldlog log`` prints them. The page shows any other annotation of this name as it is."""

    def approval(cause=0, **data):
        return Annotation(name="foldlog.approval", data=data, cause=cause)

    decided = {"by": "Ben", "token": "night", "until": "2026-03-05T00:00:00+00:00"}
    opened(
        page,
        report(
            [
                Action(tool="pay", call_id="k", arguments={"euros": 900}),
                approval(asked="Ann", shown={"euros": 900}),
                approval(approved=False, by="Ann", reason="<b>too</b> much\u202e"),
                approval(approved=True, **decided),
                approval(cause=None, approved=True, by="Eve"),
            ]
        ),
    )
    assert 'asked Ann to approve call 0: { "euros": 900 }' in block(page, 1)
    assert "Ann refused call 0: <b>too</b> much\\u202e" in block(page, 2)
    until = "2026-03-05T00:00:00+00:00"
    assert f"Ben with the token night approved call 0 until {until}" in block(page, 3)
    assert '"by": "Eve"' in block(page, 4)
    page.click('.transcript [data-event="2"] p .link')
    page.wait(f"{V}.event === 0")


def test_call_with_result_is_one_block(page, report):
    opened(page, report(failing()))
    events = page.ask(f"Array.from({BLOCKS}, (each) => Number(each.dataset.event))")
    assert events == [0, 1, 3, 5, 6]
    assert page.ask("document.querySelector('[data-event=\"0\"] .prose b').textContent") == "please"
    changed = page.ask(
        'Array.from(document.querySelectorAll(\'[data-event="3"] pre .added, [data-event="3"] pre'
        " .removed'), (each) => each.textContent)"
    )
    assert changed == ["-value = 1", "+value = 2"]
    assert "failed after 10 m 00 s no such text" in block(page, 3)
    assert "failed, exit 2 after 1.0 s denied" in block(page, 6)
    assert page.ask("document.querySelectorAll('.block-of.failed').length") == 2


def test_cut_names_what_was_needed_again(page, report):
    opened(page, report(failing()))
    page.wait("document.querySelector('.cut')?.innerText.includes('needed again')")
    assert "1 thing was needed again: beta.py" in block(page, 5)
    assert "needed again: beta.py, known at 1, forgotten at 5" in block(page, 6)
    page.click(".cut button", "First needed again at 6")
    assert page.ask(f"{V}.event") == 6


def test_needed_term_leads_to_event_at_this_version(page, report):
    opened(page, report(failing()))
    page.wait("document.querySelector('.cut')?.innerText.includes('needed again')")
    page.run(f"{V}.go(6)")
    page.wait("document.querySelector('.knew')?.innerText.includes('beta.py (1)')")
    page.click(".knew .pair button", "(1)")
    assert page.ask(f"[{V}.event, {V}.version]") == [1, 6]


def test_nested_lists_and_bold_code(page, report):
    text = (
        "Do **not use `rm *`** here:\n\n3. first\n   goes on\n   - inner *one*\n     1. deepest\n"
        "   - inner two\n4. second\n"
    )
    opened(page, report([replied(text)]))
    assert page.ask("document.querySelector('.prose b').innerHTML.includes('<code')")
    assert page.text(".prose b code") == "rm *"
    of = "document.querySelector('.prose > ol')"
    assert page.ask(f"[{of}.start, {of}.children.length]") == [3, 2]
    first = page.ask(f"{of}.firstChild.firstChild.textContent")
    assert first == "first\ngoes on"
    inner = f"{of}.querySelectorAll(':scope > li > ul > li')"
    assert page.ask(f"{inner}.length") == 2
    assert page.text(".prose ol ul ol li") == "deepest"
    assert page.text(".prose ul em") == "one"


def test_much_code_behind_open_bold_text_is_shown(page, report):
    opened(page, report([replied("Leave out **/cache: " + "`a` " * 40)]))
    assert page.ask("document.querySelectorAll('.prose code').length") == 40


def test_retraction_without_condensation_is_named(page, report):
    events = [said(text) for text in ("one", "two")]
    opened(page, report([*events, Retraction(version=1, reason="again")]))
    assert "· 1 retraction ·" in page.text(".facts")
    assert "1 retraction. Largest View" in page.text(".knew .about")
    assert page.text(".knew tbody td") == "Retraction 2"


def test_keys_step_through_errors_condensations_and_waits(page, report):
    opened(page, report(failing()))
    assert (
        page.text(".chips")
        .replace("\n", "")
        .startswith("2 errors‹›1 condensation‹›1 wait10 m 00 s‹›")
    )
    event_ids = []
    for key in ("e", "e", "e", "E", "c", "w"):
        page.press(key, shift=key.isupper())
        event_ids.append(page.ask(f"{V}.event"))
    assert event_ids == [4, 7, 4, 7, 5, 4]
    assert page.ask("document.querySelector('.block-of.chosen').dataset.event") == "3"
    page.click(".chip.errors button[aria-label='Next error']")
    assert page.ask(f"{V}.event") == 7
    assert page.ask(f"{V}.address()") == "#v=8&e=7"
    page.wait("location.hash.startsWith('#v=8&e=7')")


def test_longest_wait_is_not_for_the_user(page, report):
    later = said("and now?", timestamp=at(90_000))
    opened(page, report([*failing(), later]))
    assert "1 wait10 m 00 s" in page.text(".chips").replace("\n", "")
    assert page.ask(f"{V}.marks.pauses.map((each) => [each.id, each.who])") == [[8, "the user"]]


def test_days_are_named_with_another_year(page, report):
    days = [datetime(2025, 9, *day, tzinfo=UTC) for day in ((2, 9), (2, 10), (3, 8))]
    events = [said("hi", timestamp=day) for day in days]
    opened(page, report(events))
    shown = "Array.from(document.querySelectorAll('.block-of'),"
    shown += " (each) => each.querySelector('.day')?.innerText ?? '')"
    assert page.ask(shown) == ["2 Sep 2025", "", "3 Sep 2025"]
    page.ask("(window.Date.prototype.getFullYear = () => 2025)")
    page.run(f"{V}.transcript.again()")
    assert page.ask(shown) == ["2 Sep", "", "3 Sep"]


def test_search_finds_a_sent_summary(page, report):
    summary = CondensationAction(
        forgotten_event_ids=[1, 2], summary="already used by worktree", summary_offset=1
    )
    opened(page, report([*failing()[:5], summary]))
    page.run(f"{V}.find('used worktree')")
    page.wait(f"{V}.searched && document.querySelector('.hit-of')")
    page.settle()
    assert page.text(".knew h2") == "1 summary found"
    assert "At version 6, the model is sent 1 of" in page.text(".knew .soft")
    assert page.text(".hit-of").startswith("S5 summary")


def test_page_up_and_page_down_scroll_the_transcript(page, report):
    opened(page, report(sample()))
    first = f"""(() => {{
      const {{ top }} = {V}.transcript.node.getBoundingClientRect();
      return Number(Array.from({BLOCKS}).find((each) => each.getBoundingClientRect().bottom > top).dataset.event);
    }})()"""
    before = page.ask(first)
    for _ in range(3):
        page.press("PageUp")
    above = page.ask(first)
    assert above < before
    page.press("PageDown")
    assert page.ask(first) > above
    assert page.ask(f"{V}.version") == 286


def test_recorded_prompt_stands_beside_the_estimate(page, report):
    reply = {"model": "m", "usage": {"prompt_tokens": 43_603}}
    window = {
        "info": {"last_token_usage": {"input_tokens": 50_000}, "model_context_window": 272_000}
    }
    events = [said("hi"), replied("hello", meta=reply), said("again")]
    opened(page, f"{report([*events, Annotation(name='token_count', data=window)])}#v=1")
    words = "Recorded: 44k tokens of a window of 272k, for the prompt of the next call, in 1."
    assert words in page.text(".recorded")
    page.run(f"{V}.go(2)")
    assert "Recorded: 50k tokens" in page.text(".recorded")
    page.run(f"{V}.go(4)")
    assert "of the last call, in 3." in page.text(".recorded")


def test_side_says_what_the_model_knew(page, report):
    opened(page, f"{report(failing())}#v=6&e=6")
    page.wait("document.querySelector('.knew')?.innerText.includes('needed again at 6')")
    words = " ".join(page.text(".knew").split())
    assert words.startswith("Action 6")
    assert "At version 6 the model knew" in words
    assert "The agent wrote it when it was shown the View of version 6." in words
    assert "It did not know any more src/beta.py (1) needed again at 6 forgotten 2 events" in words
    assert "condensation 5 forgot 2 events" in words
    page.run(f"{V}.go(8)")
    page.wait("document.querySelector('.knew')?.innerText.includes('came back then')")
    words = " ".join(page.text(".knew").split())
    assert "1 term that condensations dropped was needed again before this version" in words
    assert "needed again at" not in words


def test_side_counts_terms_that_it_does_not_name(page, report):
    opened(page, f"{report(failing())}#v=6")
    page.wait(f"{V}.marks.needed.size")

    def left_out(count):
        dropped = f"{V}.marks.needed.values().next().value"
        terms = f"Array.from({{ length: {count} }}, (_, n) => ({{ ...term, term: String(n) }}))"
        page.run(f"(({{ terms: [term] }}) => {{ {dropped}.terms = {terms}; }})({dropped})")
        return page.ask(f"{V}.knew.gone().find((one) => one?.className === 'soft').innerText")

    assert left_out(13).startswith("and 1 more term that was needed again;")
    assert left_out(14).startswith("and 2 more terms that were needed again;")


def test_notes_stay_in_browser_or_store(page, report, serve, stored):
    for url in (report(failing()), serve(stored("c", failing()))):
        opened(page, url if url.startswith("file:") else f"{url}&id=c")
        page.run(f"{V}.goToEvent(6)")
        page.ask(f"document.querySelector('.noting textarea').value = {json.dumps(NOTE)}")
        page.click(".noting button", "Keep")
        page.wait(
            f"document.querySelector('.block-of .note')?.innerText.includes({json.dumps(NOTE)})"
        )
        page.ask("location.reload()")
        page.wait(
            f"document.querySelector('.block-of .note')?.innerText.includes({json.dumps(NOTE)})"
        )
        assert page.ask("document.querySelectorAll('main img, main script').length") == 0
    assert page.ask("window.attacked") is None


def test_a_hostile_history_runs_nothing_in_the_transcript(page, report):
    opened(page, report(hostile_history()))
    for place in range(0, 80, 6):
        page.run(f"{V}.transcript.reveal({place})")
        page.wait(READY)
    page.ask(
        "document.querySelectorAll('.transcript details').forEach((each) => (each.open = true))"
    )
    page.run(f"{V}.find('script')")
    assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert page.ask("window.attacked") is None
    assert (
        page.ask(
            "document.querySelectorAll('.transcript a, .transcript img, .transcript iframe').length"
        )
        == 0
    )


def test_only_blocks_in_sight_are_elements(page, long_report):
    opened(page, long_report)
    assert page.ask(f"{BLOCKS}.length") < 60
    page.run(f"{V}.goToEvent(50_000)")
    page.wait(READY)
    page.settle()
    assert page.ask(f"{BLOCKS}.length") < 60
    assert is_in_sight(page, 50_000)
    page.ask(f"{V}.transcript.node.scrollTop -= 3000")
    page.wait(READY)
    page.settle()
    gaps = page.ask(f"""(() => {{
          const boxes = Array.from({BLOCKS}, (each) => each.getBoundingClientRect());
          const {{ top, bottom }} = {V}.transcript.node.getBoundingClientRect();
          return [boxes[0].top <= top + 1, boxes.at(-1).bottom >= bottom - 1];
        }})()""")
    assert gaps == [True, True]


def test_header_has_the_largest_prompt(page, report):
    def replies(model):
        yield said("go")
        for tokens in (20_000, 120_000, 30_000):
            meta = {"model": model, "usage": {"prompt_tokens": tokens}}
            yield replied("yes", meta=meta)

    opened(page, report(replies("gpt-4o")))
    way = ".facts button"
    near = "largest prompt 120k of 128k (94 %), at version 2, window of gpt-4o"
    assert page.text(way) == near
    page.click(way)
    page.wait(f"{V}.version === 2")
    opened(page, report(replies("mine")))
    assert page.text(way) == "largest prompt 120k, at version 2, no limit known"
    opened(page, report([said("go")]))
    assert page.text(way).startswith("largest View ≈")


HELD = """
const plain = window.fetch;
window.fetch = async (path, ...others) => {
  if (String(path).startsWith("api/history")) await new Promise((go) => (window.go = go));
  return plain(path, ...others);
};
"""


def test_page_counts_events_while_it_loads(page, stored, serve):
    page.send("Page.addScriptToEvaluateOnNewDocument", source=HELD)
    page.send("Page.navigate", url=f"{serve(stored('c', failing()))}&id=c")
    page.wait("document.querySelector('.starting')?.innerText.includes('0 of 8 events are read')")
    page.ask("window.go()")
    page.wait(f"{V}?.history && {READY}")
    assert is_in_sight(page, 7)


FOLLOWED = """
window.tops = [];
const follow = () => {
  const last = document.querySelector('.block-of[data-event="286"]');
  const isReady = document.getElementById("app")?.dataset.ready !== undefined;
  if (isReady) window.tops.push(last?.getBoundingClientRect().top);
  requestAnimationFrame(follow);
};
requestAnimationFrame(follow);
"""


def test_phone_begins_at_the_newest_event(chromium, stored, serve):
    address = serve(stored("c", [*sample(), replied("the end")]))
    with chromium.new_page(390, 844, tab="transcript") as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=FOLLOWED)
        opened(page, f"{address}&id=c")
        page.wait(f"{V}.transcript.target === undefined")
        tops = page.ask("window.tops")
        assert max(tops) - min(tops) < 2
        assert 0 < tops[0] < 844


SLOW = """
const plain = window.fetch;
window.fetch = async (path, ...others) => {
  if (String(path).startsWith("api/events")) await new Promise((go) => setTimeout(go, 1500));
  return plain(path, ...others);
};
"""


def test_linked_event_stays_while_texts_come_late(page, stored, serve):
    page.send("Page.addScriptToEvaluateOnNewDocument", source=SLOW)
    opened(page, f"{serve(stored('c', sample()))}&id=c#v=134&e=133")
    page.wait(f"{V}.transcript.target === undefined")
    above = f"{V}.transcript.tops[{V}.transcript.placeOf(133)] - {V}.transcript.node.scrollTop"
    assert page.ask(above) == pytest.approx(120, abs=2)


TEXTS_HELD = """
const plain = window.fetch;
window.held = [];
window.fetch = async (path, ...others) => {
  if (window.held && String(path).startsWith("api/events"))
    await new Promise((go) => window.held.push(go));
  return plain(path, ...others);
};
"""


def test_wheel_lets_go_of_linked_event_before_its_texts_come(page, stored, serve):
    """While texts are missing, no timer lets go of the event."""
    page.send("Page.addScriptToEvaluateOnNewDocument", source=TEXTS_HELD)
    page.open(f"{serve(stored('c', sample()))}&id=c#v=134&e=133")
    page.wait(f"{BLOCKS}.length && document.querySelector('.block-of .waiting')")
    page.ask("new Promise((done) => setTimeout(done, 1000))")  # longer than ``settle`` waits
    transcript = f"{V}.transcript"
    assert page.ask(f"{transcript}.target === {transcript}.placeOf(133)")
    above = f"{transcript}.tops[{transcript}.placeOf(133)] - {transcript}.node.scrollTop"
    assert page.ask(above) == pytest.approx(120, abs=2)
    x, y = page.ask(
        "(() => { const { x, y } = document.querySelector('.transcript').getBoundingClientRect();"
        " return [x, y]; })()"
    )
    page.send(
        "Input.dispatchMouseEvent",
        type="mouseWheel",
        x=x + 200,
        y=y + 200,
        deltaX=0,
        deltaY=300,
    )
    page.wait(f"{transcript}.target === undefined")
    page.wait(f"{above} < -100")
    page.ask("window.held.splice(0).forEach((go) => go(), window.held = undefined)")
    page.wait(READY)
    page.settle()
    assert page.ask(above) < -100


def test_the_sample_can_be_read_with_the_keyboard(page, report):
    opened(page, report(sample()))
    page.run(f"{V}.goToEvent(100)")
    page.press("j")
    following = page.ask(f"{V}.event")
    page.press("k")
    assert page.ask(f"{V}.event") < following
    page.press("m")
    assert page.ask("document.querySelector('.picture').checkVisibility()")
    page.press("m")
    page.press("Home")
    assert page.ask(f"{V}.version") == 0
    page.press("End")
    assert page.ask(f"{V}.version") == 286
    page.press("n")
    assert page.ask("document.activeElement.localName") == "textarea"
