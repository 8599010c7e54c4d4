"""The published figures of compactions: ``python -m benchmarks.compaction``."""

import json
import random

import pytest

from benchmarks import agents, compaction
from foldlog.condensers import ESTIMATE
from foldlog.replays import replay
from tests.said import replied, said


def test_page_shows_the_published_figures():
    group = json.loads(compaction.PUBLISHED.read_text(encoding="utf-8"))
    page = compaction.PAGE.read_text(encoding="utf-8")
    assert compaction.in_page(page, group) == page
    assert len(group["histories"]) == 40


def test_copier_summarizes_for_both_prompts():
    events = compaction.generate_events(0, 110)
    condensers = compaction.condensers()
    for kind in ("llm", "structured_summary"):
        for prompt, is_cached in (("events", False), ("continue", True)):
            name = f"{kind}, {prompt}, 40 events"
            figures = compaction.figures(name, [replay(events, condensers[name], ESTIMATE)])
            assert figures["condensations"] > 1, name
            assert (figures["claude-sonnet-4-5"]["summary_cached"] > 0) is is_cached, name


def test_histories_that_need_nothing_again_have_no_percentages():
    chosen = {"a": [said("hi", id=0), replied("hello", id=1)]}
    group = compaction.measure_condensers(chosen, ["noop"])
    assert (group["rows"]["noop"]["terms"], group["rows"]["noop"]["facts"]) == (None, None)
    assert " | – | – | " in compaction.tables(group)


def test_a_later_run_joins_the_pieces_of_earlier_ones(tmp_path, monkeypatch):
    chosen = {"a": compaction.generate_events(0, 60)}
    names = ["noop", "digest, 40 events"]
    whole = compaction.measure_condensers(chosen, names)
    replayed = []

    def counted(events, condenser, tokens):
        replayed.append(condenser.type)
        return replay(events, condenser, tokens)

    monkeypatch.setattr(compaction, "replay", counted)
    compaction.measure_condensers(chosen, names[1:], tmp_path)
    (tmp_path / "noop.unfinished").write_text("{")  # as a killed run leaves it
    assert compaction.measure_condensers(chosen, names, tmp_path) == whole
    assert compaction.measure_condensers(chosen, names, tmp_path) == whole
    assert replayed == ["digest", "noop"]
    with pytest.raises(ValueError, match="another measurement"):
        compaction.measure_condensers({"b": compaction.generate_events(1, 50)}, names, tmp_path)


def test_a_page_lacks_no_row(capsys):
    with pytest.raises(SystemExit):
        compaction.main(["x", "--only", "noop", "--publish"])
    assert "--publish writes all rows" in capsys.readouterr().err


def test_the_page_shows_the_published_figures_of_agents():
    rows = json.loads(agents.PUBLISHED.read_text(encoding="utf-8"))
    page = agents.PAGE.read_text(encoding="utf-8")
    assert agents.in_page(page, rows) == page
    assert {*rows} == {*agents.AGENTS}
    assert all({*ways} == {*agents.OURS, *agents.LARGER, *agents.THEIRS} for ways in rows.values())


def test_each_fact_is_recognized_and_needed_again():
    for kind in agents.KINDS:
        fact = agents.plant_fact(random.Random(0), kind, 7)
        assert agents.FACT.fullmatch(fact.text), fact
        assert fact.value in fact.text
    for agent in agents.AGENTS:
        turns = agents.work_of(agent, 0)
        said = ""
        for turn in turns:
            said += turn.request
            assert all(fact.text in said for fact in turn.needed)
            said += turn.result
        needed = [fact.kind for turn in turns for fact in turn.needed]
        assert {*needed} == {*agents.KINDS}
        assert len(needed) > 100


def test_a_prompt_that_repeats_is_read_from_the_cache():
    server = agents.Server()
    first = "a" * 40_000
    server.ask(first, 10)
    server.ask(first + "b" * 4_000, 10)
    server.ask("c" + first, 10)
    assert server.read == 9 * agents.STEP
    assert server.written == 10_000 + 11_000 - 9 * agents.STEP + 10_000
    assert server.replied == 30


def test_the_scripted_model_keeps_what_leaves_the_view():
    facts = [
        agents.plant_fact(random.Random(n), kind, n) for n in range(9) for kind in agents.KINDS
    ]
    text = "\\n".join(fact.text for fact in facts)
    kept = agents.summary_of(text, 10_000)
    assert all(fact.text in kept for fact in facts)
    short = agents.summary_of(text, 200)
    _heading, *lines = short.splitlines()
    assert len("\n".join(lines)) <= 200
    assert facts[-1].text in short
    assert facts[0].text not in short


@pytest.mark.parametrize(
    "ours, text",
    [(agents.OURS, "For {} of the 15 rows"), ({**agents.OURS, **agents.LARGER}, "all {} rows")],
    ids=["of the same size", "of any size"],
)
def test_the_page_says_how_many_rows_of_others_are_beaten(ours, text):
    rows = json.loads(agents.PUBLISHED.read_text(encoding="utf-8"))
    beaten = sum(
        any(agents.beats(ways[name], ways[theirs]) for name in ours)
        for ways in rows.values()
        for theirs in agents.THEIRS
    )
    assert text.format(beaten) in agents.PAGE.read_text(encoding="utf-8")


def figures_of(cost, *shown):
    """Figures of a way, with ``shown`` of 9 facts of each kind."""
    return {
        "compactions": 3,
        "costs": dict.fromkeys(agents.PRICES, cost),
        "recall": {str(kind): [9, count] for kind, count in enumerate(shown)},
    }


def test_a_way_beats_another_that_costs_more_and_shows_no_more_of_any_kind():
    theirs = figures_of(2.0, 5, 5)
    assert agents.beats(figures_of(1.9, 5, 6), theirs)
    assert not agents.beats(figures_of(1.9, 9, 4), theirs)
    assert not agents.beats(figures_of(2.0, 9, 9), theirs)
    dearer_at_one_price = figures_of(1.9, 9, 9)
    dearer_at_one_price["costs"]["gpt-5.2"] = 2.1
    assert not agents.beats(dearer_at_one_price, theirs)


def test_runs_with_several_seeds_are_one_row():
    joined = agents.join_runs([figures_of(2.0, 5, 1), figures_of(3.0, 7, 2)])
    assert joined == {**figures_of(2.5), "recall": {"0": [18, 12], "1": [18, 3]}}


def test_the_guide_names_the_published_costs():
    rows = json.loads(compaction.PUBLISHED.read_text(encoding="utf-8"))["rows"]
    guide = (compaction.PAGE.parents[1] / "CONDENSERS.md").read_text(encoding="utf-8")

    def cost(name):
        return f"${rows[name]['claude-sonnet-4-5']['cost']:.2f}"

    shown = int(rows["digest, 40 events"]["terms"])
    assert f"which cost {cost('noop')} with `noop`" in guide
    assert f"keeps {shown} % of the names that are used again, for {cost('digest, 40 events')}" in (
        guide
    )
    assert f"| {cost('pipeline')}; for pages" in guide
    continued = cost("llm, continue, when_cheaper")
    other = cost("llm, events, 40 events")
    assert f'{continued} instead of {other} for `{{"type": "llm", "max_size": 40}}`' in guide
