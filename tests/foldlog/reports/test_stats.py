"""The figures of conversations are counted from their events. ``tests/golden/stats`` has events and
their figures.

    python -m tests.foldlog.reports.test_stats

writes the figures again. Look at what changed.
"""

import json
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

import foldlog
from foldlog import open as open_histories
from foldlog._reports.figures import context_limit
from foldlog._reports.figures.context_limit import ContextUse
from foldlog.eventstore import NOT_RECORDED, Annotation, CondensationAction
from foldlog.eventstore.log import row
from tests.golden.cases import cases_in, write_anew
from tests.said import replied, said
from tests.stored_rows import execute

RECORDED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
CASES = [case for cases in cases_in("stats").values() for case in cases]


def figures_of(case, output):
    """Return the figures of the events, one in a line, after a redaction of the events that it
    names.
    """
    with foldlog.open("memory:", clock=lambda: RECORDED_AT) as histories:
        history = histories["c"]
        history.append([replace(event, id=NOT_RECORDED) for event in case.events()])
        if output != "stats":
            history.redact(json.loads(output.removeprefix("after a redaction of ")), reason="old")
        document = json.loads(msgspec.json.encode(history.stats().document()))
    figures = {name: figure for name, figure in document.items() if figure not in (None, {}, [])}
    return "\n".join(f"{name}: {json.dumps(figure)}" for name, figure in figures.items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_events_have_the_figures_of_their_case(case):
    for output, figures in case.outputs.items():
        assert figures_of(case, output) == figures


def test_window_of_several_models_names_the_first(tmp_path, monkeypatch):
    """The source has no events yet, so its models are known from their sums only."""
    lines = [
        {
            "type": "assistant",
            "uuid": f"line-{number}",
            "sessionId": "s",
            "version": "1.0.70",
            "timestamp": f"2026-05-02T08:00:0{number}.000Z",
            "message": {
                "role": "assistant",
                "id": f"msg_{number}",
                "model": f"claude-{number}",
                "usage": {"input_tokens": 100, "output_tokens": 10},
                "content": [{"type": "text", "text": "I look."}],
            },
        }
        for number in reversed(range(8))
    ]
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    window = SimpleNamespace(max_input_tokens=200_000)
    monkeypatch.setattr(context_limit, "window_of", lambda model: window)
    with foldlog.open("memory:") as histories:
        (history,) = histories.import_(tmp_path / "s.jsonl", conversation="s")
        stats = history.stats()
        assert history._store.conversation("s", as_stored=True).unmade == 8
    assert (stats.max_input_tokens, stats.window_of) == (200_000, "claude-0")


def test_cost_without_cache_stands_beside(foldlog, tmp_path):
    prices = tmp_path / "prices.json"
    price = {
        "input_cost_per_token": 1e-3,
        "output_cost_per_token": 0,
        "cache_read_input_token_cost": 1e-4,
    }
    prices.write_text(json.dumps({"mine": price}))
    usage = {"prompt_tokens": 1_000, "completion_tokens": 1, "cached_tokens": 900}
    with open_histories("sqlite:///foldlog.db") as histories:
        reply = replied("yes", meta={"model": "mine", "usage": usage})
        histories["c"].append([said("hi"), reply])
    shown = foldlog(f"stats c --prices {prices}").out
    assert "of mine would have cost ≈ $1.0000 instead of $0.1900" in " ".join(shown.split())


@pytest.fixture
def long(stored):
    """A conversation of 602 events: its attributes, 600 replies and a condensation."""
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    history = stored.create("ours", {"app": "x"})
    for number in range(600):
        data = {"content": f"m{number}", "type": "ai", "usage_metadata": usage}
        history.append_records([{"type": "ai", "data": data}], format="langchain")
    history.append(CondensationAction(forgotten_event_ids=[1, 2]))
    return history


def test_events_are_decoded_few_times(long, monkeypatch):
    decoded = Counter()
    decode_all = row.decode_all

    def counting(kinds, schemas, bodies, ids):
        decoded.update(ids)
        return decode_all(kinds, schemas, bodies, ids)

    monkeypatch.setattr(row, "decode_all", counting)
    stats = long.stats()
    # counted, for the curve, and for the Views at the condensation
    assert {decoded[event_id] for event_id in range(600)} <= {*range(1, 7)}
    assert (stats.findings, sum(model.calls for model in stats.models.values())) == ([], 600)
    assert len(stats.view_tokens) == 603


def test_a_damaged_event_takes_the_sizes_of_its_view_alone(foldlog, long):
    long.stats()
    execute("foldlog.db", "UPDATE events SET body = 'x' WHERE id = 590")
    ran = foldlog("stats --json")
    assert (ran.status, ran.document["events"]["total"], ran.document["view_tokens"]) == (
        1,
        602,
        [],
    )
    (finding,) = ran.document["findings"]
    assert finding.startswith("conversation 'ours': the sizes of its View are not counted: ")
    assert "event 590" in finding
    long.append(said("more"))
    assert foldlog("stats --json").document["events"]["total"] == 603, (
        "what was counted before is not read again"
    )


@pytest.mark.parametrize(
    "window, shown_as",
    [
        (2_000, "900 of 2,000 tokens (45 %), at version 0; window of m"),
        (800, "900 tokens, at version 0; no limit known"),
    ],
)
def test_largest_prompt_beside_the_window(foldlog, stored, monkeypatch, window, shown_as):
    usage = {"prompt_tokens": 900, "completion_tokens": 7}
    reply = {"role": "assistant", "content": "hi", "model": "m", "usage": usage}
    stored["c"].append_reply(reply)
    monkeypatch.setattr(
        context_limit, "window_of", lambda model: SimpleNamespace(max_input_tokens=window)
    )
    document = foldlog("stats c --json").document
    limit = window if window >= 900 else None  # of the table, not of these calls
    assert (document["peak_prompt_tokens"], document["max_input_tokens"]) == (900, limit)
    assert f"largest prompt: {shown_as}\n" in foldlog("stats c").out


@pytest.mark.parametrize("limit", [True, 0, -1, "1000", 1.5])
def test_a_limit_that_is_no_number_of_tokens_is_no_limit(limit):
    use = ContextUse()
    use.note(CondensationAction(id=1, forgotten_event_ids=(0,), metadata={"tokens_max": limit}))
    info = {"last_token_usage": {"input_tokens": 10}, "model_context_window": limit}
    use.note(Annotation(id=2, name="token_count", data={"info": info}))
    assert use.limit() is None


if __name__ == "__main__":
    write_anew("stats", figures_of)
