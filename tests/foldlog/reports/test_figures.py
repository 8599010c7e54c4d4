"""Every command, the page and their JSON show the same figures of a history."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import asdict

from foldlog import Action, CondensationAction, Observation
from foldlog.commands import open_existing
from foldlog.eventstore.usage import whole
from foldlog.formats import FORMATS, decode
from foldlog.formats.summed_calls import PRICED_FROM
from foldlog.projections import Views
from tests.figures import Prices, collect_stats
from tests.foldlog.records import CORPUS, SAMPLE, records_of, write_lines
from tests.golden.rows import rows
from tests.how_many import some
from tests.said import said
from tests.stored_rows import execute
from tests.web_client import asking_store


@pytest.mark.parametrize("format", some(FORMATS, 9))
def test_figures_are_equal_everywhere(foldlog, format, stored):
    corpus = CORPUS / f"{format}.jsonl"
    assert foldlog("import --conversation c --format", format, corpus).status == 0
    assert foldlog("append other 'something else' --new").status == 0
    # Before its first use, an import counts records as events: see ``foldlog stats --help``.
    logged = foldlog("log c --json").document["events"]
    in_python = stored["c"].stats()
    stats = foldlog("stats c --json").document
    events = stats["events"]["total"]
    errors = stats["errors"]
    condensations = sum(row["made"] for row in stats["condensations"].values())
    calls = {tool: figures["calls"] for tool, figures in stats["tools"].items() if figures["calls"]}

    assert stats["tools"] == {tool: asdict(figures) for tool, figures in in_python.tools.items()}
    assert sum("uncounted" not in event for event in logged) == events
    assert foldlog("log c --all").out.count("(not counted)") == len(logged) - events
    (listed,) = foldlog("list --long --match c --json").document["conversations"]
    assert (listed["version"], listed["events"]) == (len(logged), events)
    assert (listed["errors"], listed["condensations"]) == (errors, condensations)
    run, _ = foldlog("diff c other --json").document["runs"]
    assert (run["tools"], run["calls"], run["errors"]) == (calls, sum(calls.values()), errors)
    assert listed["spent"] == run["spent"] == stats["spent"]
    assert foldlog("export --to audit.db").status == 0
    counted = "sum(not taken_back), sum(kind = 'observation' AND is_error AND NOT taken_back)"
    of_c = f"SELECT {counted} FROM events WHERE conversation = 'c'"
    assert execute("audit.db", of_c) == [(events, errors or 0)]
    with open_existing("foldlog.db") as store, asking_store(store) as client:
        assert client.json("fleet")["events"] == events + 1
        page = client.json("history?id=c")
        models = client.json("models?id=c")["models"]
    assert (page["events_counted"], page["condensations"]) == (events, condensations)
    for field in ("calls", "condenser_calls", "prompt_tokens", "completion_tokens"):
        of_models = sum(model[field] or 0 for model in models)
        assert of_models == (stats["spent"][field] or 0), field


def test_forgotten_counts_equal_the_views(histories):
    (history,) = histories.import_(SAMPLE)
    lost = [
        event.id
        for action in history.events()
        if isinstance(action, CondensationAction)
        for event in histories.views.difference(history.id, action.id, action.id + 1).left
    ]
    (figures,) = history.stats().condensations.values()
    assert figures.events_forgotten == sum(event_id >= 0 for event_id in lost)
    assert figures.summaries_forgotten == sum(event_id < 0 for event_id in lost)


@pytest.mark.parametrize(
    "tool, is_error, state",
    [("finish", False, "answer"), ("finish", True, "error"), ("bash", False, "result")],
)
def test_run_with_finish_is_answered(foldlog, tool, is_error, state, stored):
    call = Action(tool=tool, call_id="1", arguments={"message": "done"})
    result = Observation(call_id="1", content="so be it", is_error=is_error)
    stored["c"].append([said("please"), call, result])
    assert foldlog("list --long --json").rows("state") == [state]


@pytest.fixture(scope="module")
def price_table():
    """The table of prices that litellm brings."""
    spec = find_spec("litellm")
    name = "model_prices_and_context_window_backup.json"
    return json.loads(Path(spec.origin).with_name(name).read_text())


def test_prompts_are_added_up_between_the_borders_of_prices(price_table):
    borders = {
        int(size) * 1_000
        for price in price_table.values()
        for size in re.findall(r"_above_(\d+)k_tokens", " ".join(price))
    }
    ranges = {
        tier.get("range", [0])[0]
        for price in price_table.values()
        for tier in price.get("tiered_pricing", ())
    }
    assert borders
    assert ranges
    assert borders | ranges <= {*PRICED_FROM}


def test_each_price_of_the_table_can_be_read(price_table):
    prices = Prices()
    for model in price_table:
        prices.of(model)


def test_prompt_has_the_tokens_of_its_parts():
    usage = {"prompt_tokens": 13, "cached_tokens": 10, "cache_write_tokens": 7}
    assert whole(usage) == {**usage, "prompt_tokens": 20}
    assert whole({"prompt_tokens": 5, "cached_tokens": 6})["prompt_tokens"] == 6
    for usage in ({}, {"cached_tokens": 3}, {"prompt_tokens": 9, "cached_tokens": 9}):
        assert whole(usage) == usage


TELLS_CALLS = {format: records_of(format) for format in FORMATS} | rows(
    "usage.json", "records with the usage of calls"
)
"""Records that tell the usage of calls."""
TELLS_NO_CALLS = {
    "openai-responses",
    "openai-chat",
    "swe-agent",
    "agent-framework",
    "chatgpt",
    "claude-ai",
}
WITHOUT_ID = {"aider": (1, 1), "anthropic-messages": (1, 1), "pydantic-ai": (1, 0)}
"""How many replies without an id are in all records, and in the first two thirds of them."""


@pytest.mark.parametrize("format", sorted({*FORMATS} - TELLS_NO_CALLS))
def test_copies_count_each_reply_once(histories, format):
    records = TELLS_CALLS[format]
    growing = records[: len(records) * 2 // 3]
    store = histories.store
    for name, copied in (("whole", records), ("copy", records), ("growing", growing)):
        store.ingest(name, decode(copied, format))
    spent = [
        {
            (model.model, model.day): (model.calls, model.prompt_tokens, model.cost)
            for model in collect_stats(store, names, views=Views(store)).models.values()
        }
        for names in (["whole"], ["whole", "copy"], ["whole", "copy", "growing"])
    ]
    calls = [sum(figures[0] for figures in models.values()) for models in spent]
    assert calls[0] > 0
    if format in WITHOUT_ID:
        # nothing says that these are replies of the copied session, so each copy counts
        in_copy, in_growing = WITHOUT_ID[format]
        assert calls[1:] == [calls[0] + in_copy, calls[0] + in_copy + in_growing]
    else:
        assert spent[1:] == [spent[0]] * 2


ZONED = [
    "2026-07-01T00:10:00+02:00",
    "2026-06-30T18:20:00-04:00",
    "2026-06-30T23:15:00",
    "2026-07-01T03:45:30.250+05:30",
    "2026-07-01T00:00:00Z",
]
"""Times of records. The first, the second and the fourth are on 30 June in UTC. The third names no
zone, and counts on its own day.
"""


def zoned_records(format):
    for number, time in enumerate(ZONED):
        role = "assistant" if number % 2 else "user"
        if format == "codex":
            kind = "output_text" if number % 2 else "input_text"
            content = [{"type": kind, "text": f"line {number}"}]
            message = {"type": "message", "role": role, "content": content}
            yield {"timestamp": time, "type": "response_item", "payload": message}
            continue
        content = [{"type": "text", "text": f"line {number}"}]
        parent = {"parentUuid": f"u{number - 1}" if number else None, "sessionId": "s"}
        message = {"id": f"m{number}", "role": role, "content": content}
        yield {"type": role, "uuid": f"u{number}", **parent, "timestamp": time, "message": message}


@pytest.mark.parametrize("format", ["claude-code", "codex"])
def test_days_are_in_utc_before_and_after_the_first_use(histories, tmp_path, format):
    path = write_lines(tmp_path / "zoned.jsonl", zoned_records(format))
    (history,) = histories.import_(path, format=format)
    before = _times(history)
    history.view()
    assert _times(history) == before
    days, first, _ = before
    assert days == {"2026-06-30": 4, "2026-07-01": 1}
    assert first == "2026-06-30T22:10:00+00:00"


def _times(history):
    stats = history.stats()
    return stats.days, stats.first_at and stats.first_at.isoformat(), stats.last_at
