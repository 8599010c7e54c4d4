"""Digests: their statements about events, their size, and how a digest continues the last one.

``tests/golden/digests`` has the digest of small histories, a rule for each;
``python -m tests.condensers.test_digest`` makes them again.
"""

import re
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from foldlog.condensers import ESTIMATE
from foldlog.condensers.base import Overrun
from foldlog.condensers.stepping import step
from foldlog.condensers.strategies import digest as strategy
from foldlog.condensers.strategies.digest import (
    Digest,
    DigestCondenser,
    commands,
    digest_of,
    layout,
)
from foldlog.condensers.strategies.digest.commands import covers, kinds_of_check
from foldlog.condensers.strategies.digest.facts import Section
from foldlog.condensers.strategies.digest.fold import DigestLine
from foldlog.condensers.strategies.digest.layout import LENGTH_LEAST, _cut, text_of
from foldlog.eventstore import open_store
from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationSummary,
    Message,
    Observation,
)
from foldlog.projections import View, Views
from foldlog.replays import replay
from tests.beside import SAMPLES, needs_samples
from tests.condensers.made import (
    SYSTEM,
    after,
    answer,
    call,
    later,
    message,
    messages,
    new_history,
    pair,
    parts_with,
    plan,
    viewed,
)
from tests.condensers.scripted import Characters
from tests.golden.cases import cases_in, write_anew
from tests.how_many import examples, some
from tests.imported import SHIPPED, imported
from tests.properties.histories import histories

CASES = [case for cases in cases_in("digests").values() for case in cases]
LENGTH = 6_000
ASKED = "Asked by the user"
SAID = "Said by the agent"
RAN = "Commands run"
CHANGED = "Files changed"
ERRORS = "Errors without a later success"
EARLIER = "Earlier summary"
NAMES = "Lines with names"
RARE = "Lines with rare words"


def digest(*events, length=LENGTH):
    return text_of(Digest().plus(viewed(*events)), length)


def section(text, heading):
    """Return the lines below a heading, without the ids at their ends."""
    lines = text.partition(f"## {heading}\n")[2].partition("\n\n")[0].splitlines()
    return [re.sub(r" \[\d+\]$", "", line[2:]) for line in lines]


def ran(number, command, content="done"):
    extras = {"metadata": {"exit_code": 0}}
    call_id = f"r{number}"
    return [call("bash", call_id, command=command), answer(content, call_id, extras=extras)]


def runs(count):
    return [event for number in range(count) for event in ran(number, f"cmd {number}")]


def edit(number):
    path = f"/w/part_{number}.py"
    return pair(number, "Edit", path=path, old_string="a = 1", new_string=f"a = {number}")


def summary(view):
    """Return the text of the only summary of a View."""
    (text,) = (event.content for event in view if isinstance(event, CondensationSummary))
    return text


def files_known(text):
    """Return the number of changed files that a digest names or counts."""
    lines = [line for line in section(text, CHANGED) if not line.startswith("(files that")]
    left_out = re.search(r"\((\d+) earlier left out\)", "\n".join(lines))
    return len(lines) + (int(left_out[1]) - 1 if left_out else 0)


def run_case(case, output):
    return text_of(Digest().plus(case.events()), int(output.split()[1]))


# --- facts in plain words ---

FILLER = "the queue returns a stale value when the parser of the worker restarts"


def looks(count, content=lambda number: FILLER):
    for number in range(count):
        yield from ran(number, f"look {number}", "\n".join([FILLER] * 9 + [content(number)]))


def test_a_fact_in_plain_words_outlives_common_lines():
    facts = {7: "the harbour falcon turned teal", 30: "the tower heron listens on port 8123"}
    text = digest(*looks(80, lambda number: facts.get(number, FILLER)), length=1_500)
    assert section(text, RARE) == [*facts.values()]
    assert "look 70`" in text
    assert "look 7`" not in text


def test_a_long_line_is_rare_by_its_sentences():
    fact = "We decided against Redis because of its licence."
    text = digest(*looks(40, lambda number: f"{FILLER}. " * 9 + fact * (number == 5)), length=900)
    assert section(text, RARE) == [fact]


def test_an_older_request_is_cut_to_its_rarest_sentences():
    def request(number):
        return f"{FILLER}. Never touch the ledger of shop {number}. {FILLER}. {FILLER}."

    talk = [message(request(number)) for number in range(40)]
    lines = section(digest(*looks(9), *talk, length=4_000), ASKED)
    assert f"… Never touch the ledger of shop {len(talk) - 2}. …" in lines
    assert lines[-1] == request(len(talk) - 1), "the newest request is not cut"


@pytest.mark.parametrize("short", ["No emojis.", "Use tabs!", "本番環境には触らないでください。"])
def test_a_short_sentence_of_a_person_is_kept_among_long_ones(short):
    words = f"{FILLER}. {FILLER}. {short} {FILLER}."
    talk = [message(f"Step {number}. {words}") for number in range(40)]
    lines = section(digest(*looks(9), *talk, length=4_000), ASKED)
    assert len(lines) == 40
    assert all(short in line for line in lines)
    said = [message(f"Step {number}. {words}", "agent") for number in range(40)]
    lines = section(digest(*looks(9), *said, length=4_000), SAID)
    assert len(lines) > 10
    assert all(short in line for line in lines if "left out" not in line)


def test_a_prohibition_in_common_words_is_kept_from_the_middle_of_a_long_request():
    def rules(start):
        places = range(start, start + 12)
        return " ".join(f"Release {n} of the shop needs notes in ledger {n * 37}." for n in places)

    talk = [
        message(f"{rules(100 * n)} Do not use the queue. {rules(100 * n + 50)}")
        for n in range(1, 10)
    ]
    work = looks(40, lambda number: f"the queue is used in shop {number}, do look at it")
    left_out, *older, newest = section(digest(*work, *talk), ASKED)
    assert left_out == "(2 earlier left out)"
    assert max(map(len, older)) < 600, "they are cut"
    assert ["Do not use the queue." in line for line in (*older, newest)] == [True] * 7


# --- commands ---


@pytest.mark.parametrize(
    "wide, narrow, is_covered",
    [
        ("cd build && pytest tests", "pytest tests/test_a.py", True),
        ("(cd build; pytest)", "pytest tests", True),
        ("pytest tests > log.txt 2>&1 | tail -5", "pytest tests/test_a.py", True),
        ("pytest tests < list.txt", "pytest tests/test_a.py", True),
        ("CI=1 time pytest tests", "pytest tests/test_a.py", True),
        ("pytest \\\n  tests", "pytest tests/test_a.py", True),
        ('pytest "tests"', "pytest 'tests/test_a.py'", True),
        ("cat > run.sh <<'END' && pytest\none two\nEND", "pytest tests", True),
        ("cat > run.sh <<'END'\npytest\nEND", "pytest tests", False),
        ("echo 'all; pytest'", "pytest tests", False),
        ("pytest tests/test_b.py", "pytest tests/test_a.py", False),
        ("pytest", "pytest tests -x -k 7", True),
        ("pytest 'a b'", "make x", False),
        ("", "pytest", False),
    ],
)
def test_a_command_covers_what_its_words_select(wide, narrow, is_covered):
    assert covers(wide, narrow) is is_covered


def test_commands_change_no_files_of_a_digest():
    text = digest(*ran(1, "date > today.txt; rm old.txt"))
    assert not section(text, CHANGED)
    assert "date > today.txt; rm old.txt" in text


def test_versions_of_a_digest_get_shorter_by_an_eighth():
    view = viewed(runs(400))
    summary = DigestCondenser().summary(view, slice(0, len(view)))
    lengths = [len(summary.text)]
    text = summary.shorter(summary.text)
    while text is not None:
        lengths.append(len(text))
        text = summary.shorter(text)
    assert lengths[0] > 7_000
    for longer, shorter in pairwise(lengths[:8]):
        assert longer * 7 / 8 - 100 < shorter <= longer * 7 / 8
    assert lengths[-1] <= LENGTH_LEAST


def test_a_line_that_just_fits_is_not_cut():
    line = DigestLine("One. Two.", 1, ranked=(1, 0))
    assert layout._cut(line, 9) is line
    assert layout._cut(line, 8).text == "… Two."
    assert layout._cut(line._replace(ranked=()), 8).text == "One. Tw…"


def test_names_in_bookkeeping_are_no_words_of_the_user():
    queued = Annotation(name="queue-operation", data={"content": "see src/dates.py"}, shown=True)
    folded = Digest().plus(viewed(queued, message("see src/rest.py")))
    assert [*folded.names] == ["src/rest.py"]
    empty = Digest().plus(viewed(Annotation(name="queue-operation", data="x", shown=True)))
    assert not any(empty.lines.values())
    blank = Annotation(name="queue-operation", data={"content": " "}, shown=True)
    assert not any(Digest().plus(viewed(blank)).lines.values())


def test_a_digest_of_another_history_is_not_quoted():
    """A summary of an imported history may be a digest, and its facts are in the log."""
    quoted = CondensationSummary(content="The kite is built.\n\n# Digest of 7 events\nx")
    assert section(digest(quoted), EARLIER) == ["The kite is built."]
    assert EARLIER not in digest(CondensationSummary(content="# Digest of 7 events"))


def test_a_refusal_of_a_call_that_is_not_forgotten():
    refusal = answer("no", tool="rm", extras={"rejection_source": "user"})
    assert "refused by the user: rm; the user said: no" in section(digest(refusal), ASKED)


def test_a_command_that_quotes_a_patch_is_no_patch():
    text = digest(pair(1, "bash", command="make check-patches PREFIX='*** Begin Patch'"))
    assert section(text, RAN) == ["`make check-patches PREFIX='*** Begin Patch'` → done"]


@pytest.mark.parametrize(
    "own",
    [
        "<bash-input>make</bash-input>",
        "<bash-stdout>ok</bash-stdout>",
        "<ide_opened_file>The user opened a.py.</ide_opened_file>",
    ],
)
def test_a_command_that_the_user_ran_is_no_answer(own):
    question = message("Which of the two ports should the server listen on?", "agent")
    text = digest(message("Begin."), *ran(1, "ls"), question, message(own))
    assert [line for line in section(text, ASKED) if "had asked" in line] == []


@pytest.mark.parametrize(
    "text, shown, is_sent",
    [
        ("no", "nothing is known", False),
        ("no", "is there a file? no", False),
        ("stop (now)", "The user wrote:\nstop  (now)\nGo on after it.", True),
        ("first line\nsecond", "first line\n  second\n", True),
        ("w " * 400, f"The user wrote:\n{'w ' * 400}", True),
    ],
)
def test_a_waiting_request_stays_until_it_is_sent(text, shown, is_sent):
    waiting = Annotation(
        id=1, name="queue-operation", data={"operation": "enqueue", "content": text}
    )
    forgotten = Digest().plus([*viewed(message("Begin.")), waiting])
    lines = forgotten.without_shown_requests([answer(shown, "k")]).lines[Section.ASKED]
    assert len(lines) == (1 if is_sent else 2)


# --- what it says ---


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_golden_digests(case):
    for output, text in case.outputs.items():
        assert run_case(case, output) == text, "python -m tests.condensers.test_digest"
        assert len(text) <= int(output.split()[1])


def test_texts_and_names_of_all_parts_are_shown():
    written = "see\n" + "the way of all things to " * 20 + "depot/gauges.py"
    for kind, part in parts_with("read harbour/gauges.py first").items():
        text = digest(message((part,)), message((part,), "agent"))
        for heading in (ASKED, SAID):
            assert section(text, heading)[0].endswith("read harbour/gauges.py first"), kind
        text = digest(pair(1, "write", text=written, a={}), answer((part,)))
        assert "depot/gauges.py" in section(text, NAMES)[0]
        assert "harbour/gauges.py" in section(text, NAMES)[1], kind


def test_the_newest_ten_errors_are_open():
    failed = (
        pair(n, "run", f"no rule {n}\nExit code: 2", command=f"make part_{n}") for n in range(12)
    )
    lines = section(digest(*failed), ERRORS)
    assert [line.partition(" ")[0] + line[-1] for line in lines] == [
        f"`make{n % 10}" for n in range(2, 12)
    ]


_MADE = re.compile(r"(?:found/|used_)\w+")


def test_names_take_their_share_and_are_not_repeated():
    texts = [" ".join(f"found/a_{n}_{k}" for k in range(30)) for n in range(80)]
    results = [pair(n, "see", texts[n], at=f"used_{n} at used_more_{n}") for n in range(80)]
    text = digest(message("look at kite_tail and wind/a_1"), results)
    others, _, names = text.partition(f"\n\n## {NAMES}\n")
    assert 0.2 * len(text) < len(names) <= 0.28 * len(text)
    earlier_names = set(_MADE.findall(others))
    for line in re.split(r" \| |\n", names):
        new = set(_MADE.findall(line))
        assert new - earlier_names or not new
        earlier_names |= new


# --- earlier summaries ---


def summaries(*texts):
    return [CondensationSummary(content=text) for text in texts]


@pytest.mark.parametrize("texts", [["in brief"], ["the newest", "a fact " * 13, "the oldest"]])
def test_short_earlier_summaries_stay_whole(texts):
    alone = digest(summaries(*texts))
    assert digest(summaries(*texts), length=len(alone)) == alone
    talk = [message(f"w{n} " * 150, "agent") for n in range(30)]
    text = digest(summaries(*texts), talk, length=800)
    assert section(text, EARLIER) == section(alone, EARLIER)


def test_many_earlier_summaries_are_shortened_not_dropped():
    steps = "\n\n" + "- a step of this part\n" * 40
    parts = summaries(*(f"PART {n} begins{steps}PART {n} ends" for n in range(7)))
    text = digest(parts, runs(300), length=8_000)
    assert len(text) <= 8_000
    *older, newest = section(text, EARLIER)
    assert [line[:13] for line in older] == [f"PART {n} begins" for n in range(6)]
    assert {line[-1] for line in older} == {"…"}
    assert newest.endswith("PART 6 ends")


# --- the room that it takes ---


def test_a_digest_has_a_maximum_length():
    events = [[message(f"ask {n} " + "x" * 100) for n in range(20)], runs(300)]
    for length in (500, 1_000, 3_000, 20_000):
        assert len(digest(events, length=length)) <= length
    text = digest(message("x" * 100_000), events, length=3_000)
    assert len(text) <= 3_000
    assert "ask 19" in text
    left_out, *rest = section(text, RAN)
    assert left_out == f"({300 - len(rest)} earlier left out)"
    assert rest[-1] == "`cmd 299` → exit 0: done"


def test_a_digest_has_a_minimum_length():
    text = digest(message("x" * 214))
    summary = DigestCondenser().summary(viewed(messages(3)), slice(0, 3))
    assert (len(text), summary.shorter(text)) == (LENGTH_LEAST, None)


def test_older_conclusions_are_cut_before_the_newest():
    conclusion = "Root cause: " + "evidence " * 60 + "the fix is in b.py"
    events = [message(f"{n} {conclusion}", "agent") for n in range(20)]
    *older, newest = section(digest(events, runs(300)), SAID)[1:]
    assert {line[-1] for line in older} == {"…"}
    assert newest == f"19 {conclusion}"


def test_the_newest_request_is_quoted_in_full():
    newest = "Now write the manual: " + "one chapter for each kind of kite. " * 60
    older = [message(f"{n}: " + "paint the kite in another colour " * 20) for n in range(8)]
    requests = section(digest(older, message(newest)), ASKED)
    assert requests[-1] == newest.strip()
    assert [line[:2] for line in requests[:-1]] == [f"{n}:" for n in range(8)]
    assert min(map(len, requests)) >= 160


@pytest.mark.parametrize("others, least", [([], 5_500), (runs(300), 2_000)], ids=["alone", "busy"])
def test_a_long_newest_request_keeps_both_ends(others, least):
    request = message("Begin here. " + "detail " * 2_000 + "And never use glue.")
    text = digest(request, others)
    (line,) = section(text, ASKED)
    assert line.startswith("Begin here. detail")
    assert "characters and more left out" in line
    assert line.endswith("And never use glue.")
    assert least < len(line) < least + 500
    assert text.partition("never use glue.")[2].startswith(" [0]"), "its id stays"


# --- one digest after the other ---


def may_be_parted(events, place):
    """Return whether the calls before a place have their results before it. A call and its result
    are always forgotten together.
    """
    calls = [event for event in events[:place] if isinstance(event, Action)]
    names = {call.id for call in calls} | {call.call_id for call in calls}
    results = [event for event in events[place:] if isinstance(event, Observation)]
    return names.isdisjoint(name for result in results for name in (result.cause, result.call_id))


@examples(200)
@given(histories, st.integers(500, 3_000), st.data())
def test_a_digest_is_the_same_however_folded(events, length, data):
    text = text_of(Digest().plus(events), length)
    assert len(text) <= length
    places = [place for place in range(len(events) + 1) if may_be_parted(events, place)]
    place = data.draw(st.sampled_from(places))
    assert text_of(Digest().plus(events[:place]).plus(events[place:]), length) == text


BOOKKEEPING = Annotation(name="started")
ENDINGS = {
    "pytest -q": answer("FAILED tests/test_oven.py - assert 1 == 2", is_error=True),
    "cat ovens.txt": answer("heat: /etc/oven/heat.toml"),
    "sed -i s/a/b/ oven.py": answer("done"),
    "git commit -am warm": answer("[main 0a1b2c3] warm the oven"),
}


@given(
    st.permutations(range(len(ENDINGS))),
    st.permutations(range(len(ENDINGS) * 2)),
    st.integers(500, 2_000),
)
def test_parallel_results_are_digested_in_the_order_of_their_calls(first, second, length):
    def texts_and_ids(results, others):
        turns = [message("warm the oven")]
        for number, order in enumerate((results, others)):
            calls = [call("bash", f"{number}.{n}", command=c) for n, c in enumerate(ENDINGS)]
            answers = [
                replace(result, call_id=f"{number}.{n}")
                for n, result in enumerate(ENDINGS.values())
            ]
            ended = [*answers, *[BOOKKEEPING] * (len(order) - len(answers))]
            turns += [*calls, *(ended[place] for place in order), message("on", "agent")]
        events = later(20, *turns)
        text = text_of(Digest().plus(events), length)
        for found in re.finditer(r"(exit 1|heat: |FAILED|0a1b2c3).*\[(\d+)\]$", text, re.MULTILINE):
            assert found[1] in events[int(found[2]) - 20].content
        return re.sub(r"\[\d+\]", "[]", text)

    count = len(ENDINGS)
    assert texts_and_ids(first, second) == texts_and_ids(range(count), range(2 * count))


@pytest.mark.parametrize("case", some(CASES, 40), ids=lambda case: case.rule)
def test_golden_digests_can_be_folded_in_parts(case):
    events = case.events()
    output, text = [*case.outputs.items()][-1]
    length = int(output.split()[1])
    for cut in View.from_events(later(0, events)).cut_points:
        first = Digest().plus(events[:cut])
        before = text_of(first, length)
        assert text_of(first.plus(events[cut:]), length) == text, cut
        assert text_of(first, length) == before, "a digest stays as it is"


LIMITS = (4_000, 6_000, 8_000, 10_000, 12_000, 16_000, 20_000, 24_000, 32_000, 48_000, 96_000)


@pytest.mark.parametrize(
    "path, limits",
    [(SHIPPED, [4_000]), pytest.param(SAMPLES, LIMITS, marks=[pytest.mark.long, needs_samples])],
    ids=["shipped", "all"],
)
def test_later_digests_know_no_fewer_files(path, limits):
    digests = 0
    for history in imported(path):
        events = list(history.events())
        for limit in limits:
            replayed = replay(events, DigestCondenser(max_tokens=limit), ESTIMATE)
            counts = [files_known(action.summary) for action in replayed.final.condensations]
            assert counts == sorted(counts), (history.id, limit)
            digests += len(counts)
    assert digests > 1


def test_a_condensation_folds_only_new_events(monkeypatch):
    folded = []
    take = Digest._take
    monkeypatch.setattr(
        Digest, "_take", lambda digest, event: (folded.append(event.id), take(digest, event))
    )
    with new_history(DigestCondenser(max_size=20)) as history:
        history.append(message("mend them all"))
        for number in range(200):
            history.append(edit(number))
            view = history.prepare()
    assert len(view) <= 20
    assert len(folded) == len(set(folded)), "no event is folded twice"
    assert files_known(summary(view)) >= 180


def test_only_lines_that_may_fit_are_cut(monkeypatch):
    lines_cut = []
    cut = layout._cut

    def counted_cut(line, most):
        lines_cut.append(line)
        return cut(line, most)

    monkeypatch.setattr(layout, "_cut", counted_cut)
    counts = []
    for count in (200, 400):
        lines_cut.clear()
        assert f"cmd {count - 1}" in digest(runs(count), length=1_000)
        counts.append(len(lines_cut))
    assert counts[0] == counts[1] > 0


def test_a_continued_fold_equals_a_fresh_fold():
    compared = 0
    with new_history(DigestCondenser(max_size=16)) as history:
        for number in range(60):
            history.append([message(f"do {number}")] if number % 7 == 0 else edit(number))
            view = history.prepare()
            if number == 30:
                history.retract(history.version() - 6)
                view = history.view()
            going = view[1 : view.cut_points[len(view.cut_points) // 2]]
            if any(event.id >= 0 for event in going):
                fresh = View.from_events(history.events())
                assert fresh == view
                assert digest_of(view, going).count == digest_of(fresh, going).count
                assert text_of(digest_of(view, going), LENGTH) == text_of(
                    digest_of(fresh, going), LENGTH
                )
                compared += 1
    assert compared > 40


def test_a_fold_after_a_retraction_has_the_first_event():
    with new_history() as history:
        for number in range(6):
            history.append(edit(number))
        view = history.view()
        assert files_known(text_of(digest_of(view, view[:4]), LENGTH)) == 2
        history.append([message("aside")])
        history.retract(history.version() - 1)
        history.append(edit(9))
        view = history.view()
        text = text_of(digest_of(view, view[:6]), LENGTH)
        fresh = View.from_events(history.events())
        assert text == text_of(digest_of(fresh, fresh[:6]), LENGTH)
        assert files_known(text) == 3


def test_later_digests_omit_redacted_events():
    with new_history(DigestCondenser(max_size=12)) as history:
        history.append([message("go on"), message("never tell anybody of the_secret_kite")])
        for number in range(40):
            if number == 12:
                assert "the_secret_kite" in summary(history.view())
                history.redact(1, reason="asked for")
            history.append(edit(number))
            history.prepare()
        assert "the_secret_kite" not in summary(history.view())


# --- the condenser ---


@pytest.mark.parametrize(
    "before, head",
    [
        ([], 1),
        (["user"], 2),
        (["user", "environment"], 3),
    ],
)
def test_context_of_a_runtime_stays_before_the_first_request(before, head):
    context = "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>"
    work = [pair(n, command=f"make {n} {'x' * 80}") for n in range(40)]
    view = viewed([message(context, source) for source in before], message("mend the kite"), work)
    shown = after(view, DigestCondenser(max_size=30).condense(view))
    assert [event.id < 0 for event in shown].index(True) == head


@pytest.mark.parametrize("before", [[], [SYSTEM]], ids=["no prompt", "a system prompt"])
def test_the_next_digest_replaces_one_of_a_reset(before):
    condenser = DigestCondenser(max_size=30)
    work = [pair(n, command=f"make {n} {'x' * 80}") for n in range(40)]
    view = viewed(before, message("mend the kite"), work)
    view = after(view, condenser.hard_context_reset(view))
    view = view.then(later(view.version, work))
    assert "mend the kite" in summary(after(view, condenser.condense(view)))


def test_an_agent_with_a_small_window_works_on():
    """An agent with a small window works on, where a digest of the usual length would fill it."""
    condenser = DigestCondenser()
    agent = Characters(2_000)
    view = viewed(SYSTEM, message("count as far as you can"))
    forgotten = 0
    for n in range(100):
        while not isinstance(result := condenser.condense(view, agent), View):
            assert plan(result).metadata["tokens_after"] <= 1_800 * 3 / 4, (
                "half is for the head and the tail, a quarter for the summary"
            )
            forgotten += 1
            view = after(view, result)
        view = view.then(later(view.version, pair(n, command=f"step {n} {'x' * 80}")))
    assert 5 < forgotten < 40
    assert "count as far as you can" in str(view[1:3])


@pytest.mark.parametrize("result", [3_000, 4_400, 4_900, 6_000, 30_000])
@pytest.mark.parametrize("earlier", [0, 4, 60])
def test_the_newest_request_stays_beside_large_results(earlier, result):
    """No model was shown them, so they stay; where they alone are over the limit, a shorter digest
    does not help.
    """
    turns = [
        (message(f"Now paint kite {n}. {'Mind the wind. ' * 20}"), message("painted", "agent"))
        for n in range(earlier)
    ]
    request = message("Which glue holds paper? " + "Think of the rain. " * 40)
    view = viewed(SYSTEM, *turns, request, call("read"), answer("x" * result))
    outcome = step(DigestCondenser(), view, Characters(6_000)).result
    shown = view if isinstance(outcome, View) else after(view, outcome)
    texts = [event.content for event in shown if isinstance(event, Message | CondensationSummary)]
    assert "Which glue holds paper? Think of the rain." in str(texts)
    if result <= 5_000:
        assert Characters().token_sums(shown)[-1] <= 6_000 * 0.9
    else:
        assert len(outcome.action.summary) > 400, "a part of the limit is for the summary"


def test_deeply_nested_arguments_are_accepted():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for arguments in ("[" * 100_000, {"a": deep}):
        odd = Action(tool="odd", arguments=arguments, call_id="c")
        view = viewed(message(), odd, answer(call_id="c"), messages(10))
        assert "odd " in plan(DigestCondenser(max_size=10).condense(view)).summary


def test_large_documents_in_commands_are_freed():
    tracemalloc.start()
    try:
        for number in range(20):
            text = f"{number} " * 100_000
            assert not kinds_of_check(f"cat > {number}.txt <<'END'\n{text}\nEND")
        bytes_in_use, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes_in_use < 2_000_000


def test_commands_are_freed_after_a_fold():
    run = Action(tool="run", arguments={"command": "echo a-key > .env"}, call_id="c")
    Digest().plus([run, Observation(content="", call_id="c")])
    assert commands._parsed_words.cache_info().currsize == 0


@pytest.mark.parametrize("size, is_answer", [(3, True), (30, True), (31, False)])
def test_a_short_message_is_shown_with_the_question_that_it_answers(size, is_answer):
    text = ("yes " * 10)[:size].strip().ljust(size, "!")
    asked = message("Shall I delete the old table?", "agent")
    expected = "Tidy the database."
    answer_line = f"{text} (the agent had asked [1]: Shall I delete the old table?)"
    events = (message("Tidy the database."), asked, message(text), message("done", "agent"))
    assert section(digest(*events), ASKED) == [expected, answer_line if is_answer else text]


@pytest.mark.parametrize(
    "before, after",
    [((1, 4), (0, 4)), ((0, 4), (1, 4)), ((0, 6), (0, 4)), ((0, 4), (0, 6)), ((1, 4), (1, 6))],
)
def test_a_digest_goes_on_only_from_a_part_of_itself(before, after):
    """The digests are of the events from one index to another; the other events are shown."""
    requests = [message(f"Begin with part {number} of the plan.") for number in range(7)]

    def text_after(*ranges):
        with open_store("memory:") as store:
            store.append("c", requests, expected_version=0)
            view = Views(store).current("c")
            return [text_of(digest_of(view, view[start:stop]), LENGTH) for start, stop in ranges][
                -1
            ]

    assert text_after(before, after) == text_after(after)


@pytest.mark.parametrize("length", [30, 60, 90])
def test_a_cut_answer_keeps_what_the_user_said(length):
    asked = message("I have both. Which of the two files that you named do I read first?", "agent")
    made = Digest().plus(viewed(message("Begin."), asked, message("read the guide first")))
    (line,) = list(made.lines[Section.ASKED].values())[1:]
    assert line.text.startswith("read the guide first (the agent had asked [1]: Which of the two")
    cut = _cut(line, length).text
    assert len(cut) <= length + 1
    assert cut.startswith("read the guide first")


def test_a_default_limit_is_exceeded_by_one_token(monkeypatch):
    view = viewed(message("Begin."), *runs(6), message("done", "agent"))
    condenser = DigestCondenser()
    sums = ESTIMATE.token_sums(view)
    head = sums[condenser._head(view)]
    monkeypatch.setattr(strategy, "_TOKENS", sums[-1] - 2 * head)
    assert condenser.overrun(view, None) is None
    monkeypatch.setattr(strategy, "_TOKENS", sums[-1] - 2 * head - 1)
    assert condenser.overrun(view, None) == Overrun(sums, sums[-1] - 1, ESTIMATE)
    of_user = viewed(message("Begin."), *[message("more words")] * 20)
    assert condenser.overrun(of_user, None) is None


if __name__ == "__main__":
    write_anew("digests", run_case)
