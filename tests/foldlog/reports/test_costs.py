"""Usage and costs of model calls have one form everywhere, and an unknown number is not zero."""

import json
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

import foldlog
from foldlog import CondensationAction
from foldlog._reports.figures import prices as table_of_prices
from foldlog.errors import InvalidArgument
from foldlog.eventstore.usage import usage_of
from tests.figures import Prices
from tests.golden.rows import rows
from tests.said import replied, said
from tests.waiting import until
from tests.web_client import asking_store


@pytest.mark.parametrize(
    "written, usage", rows("usage.json", "usage as others write it, and as foldlog does")
)
def test_usage_has_one_shape(written, usage):
    assert usage_of(written) == usage


@pytest.mark.parametrize(
    "count", [-1, 300.5, "many", True, [1], float("nan"), float("inf"), "-3", "1e999", 10**31]
)
def test_unreadable_count_is_unknown(count):
    usage = usage_of({"prompt_tokens": count, "completion_tokens": 3})
    assert usage == usage_of(usage) == {"completion_tokens": 3}
    assert usage_of({"input_tokens": count}) == {}


@pytest.mark.parametrize("reply", rows("usage.json", "replies that cost 0.25 dollars for 9 tokens"))
def test_recorded_reply_has_its_cost_and_tokens(reply):
    def model_with(number, value):
        """Return the figures of the model where the reply tells something else for a number."""
        text = json.dumps(reply["record"]).replace(str(number), json.dumps(value))
        with foldlog.open("memory:") as histories:
            histories["c"].append_records([json.loads(text)], format=reply["format"])
            (model,) = histories["c"].stats().models.values()
        return model

    assert model_with(0.25, 0.25).cost == model_with(0.25, "0.25").cost == 0.25
    assert model_with(0.25, 0).cost == (0.0 if reply["zero_is_known"] else None)
    assert model_with(0.25, "free").cost is model_with(0.25, -1).cost is None
    for value, prompt_tokens in ((9.0, 9), ("9", 9), (9.5, None), ("many", None), (-9, None)):
        assert model_with(9, value).prompt_tokens == prompt_tokens


@pytest.mark.parametrize("case", rows("usage.json", "what a call costs"))
def test_call_is_priced_by_its_tokens(tmp_path, case):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"m": case["price of m"]}))
    cost = Prices(path).cost(case["model"], case["usage"], case.get("above", -1))
    assert cost == (None if case["cost"] is None else pytest.approx(case["cost"]))


@pytest.mark.parametrize(
    "fields",
    [
        {"output_cost_per_token": -1e-6},
        {"tiered_pricing": [{"range": [0, 100], "output_cost_per_token": -1e-6}]},
    ],
)
def test_a_price_is_not_negative(tmp_path, fields):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"m": {"input_cost_per_token": 1e-6, **fields}}))
    with pytest.raises(InvalidArgument, match="output_cost_per_token of 'm' is -1e-06, but"):
        Prices(path)


@pytest.mark.parametrize(
    "fields, problem",
    [
        ({"input_cost_per_token": "3e-06"}, "input_cost_per_token of 'm' is '3e-06'"),
        (
            {"input_cost_per_token_above_200k_tokens": "x"},
            "input_cost_per_token_above_200k_tokens of 'm' is 'x'",
        ),
        ({"input_cost_per_token_above_0k_tokens": [1]}, r"of 'm' is \[1\]"),
        ({"output_cost_per_token": True}, "output_cost_per_token of 'm' is True"),
        ({"output_cost_per_token": 10**309}, "output_cost_per_token of 'm' is 10000000"),
    ],
)
def test_a_price_is_a_number_also_where_a_tier_replaces_it(tmp_path, fields, problem):
    path = tmp_path / "prices.json"
    of_each = {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}
    tiers = [{"range": [0, 200_000], **of_each}, {"range": [200_000, 300_000], **of_each}]
    path.write_text(json.dumps({"m": {**of_each, **fields, "tiered_pricing": tiers}}))
    with pytest.raises(InvalidArgument, match=problem):
        Prices(path)


@pytest.mark.parametrize(
    "entry, problem",
    [
        (3, "the prices of 'm' are 3, but they must be an object"),
        ({"tiered_pricing": [{"range": ["0", 100]}]}, "_pricing of 'm' cannot be read: Expected"),
        ({"tiered_pricing": False}, "tiered_pricing of 'm' cannot be read: Expected"),
        ({"tiered_pricing": [{"range": [0, 1], "input_cost": 3}]}, "'m' has unknown .*input_cost"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_with_its_model(tmp_path, entry, problem):
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"m": entry}))
    with pytest.raises(InvalidArgument, match=problem):
        Prices(path)


@pytest.mark.skipif(find_spec("litellm") is None, reason="litellm is not installed")
def test_the_file_of_litellm_is_read():
    [folder] = find_spec("litellm").submodule_search_locations
    prices = Prices(Path(folder) / "model_prices_and_context_window_backup.json")
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    assert prices.cost("gpt-4o-mini", usage) == pytest.approx(0.15)


def test_a_range_of_prices_begins_with_a_number_of_tokens(tmp_path):
    path = tmp_path / "prices.json"
    tier = {"range": [-7, 100], "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}
    path.write_text(json.dumps({"m": {"tiered_pricing": [tier]}}))
    with pytest.raises(InvalidArgument, match="a range of tiered_pricing of 'm' begins below 0"):
        Prices(path)


def test_long_prompts_have_other_prices(monkeypatch):
    step = SimpleNamespace(start=200_000, price=4.0)
    priced = dict.fromkeys(("cache_read_mtok", "cache_write_mtok"))  # as version 0.0.50 has
    priced |= {"input_mtok": SimpleNamespace(base=2.0, tiers=[step]), "output_mtok": 10.0}

    def find(model, *more):
        if model != "its-model":
            raise LookupError(model)
        return None, SimpleNamespace(get_prices=lambda at: SimpleNamespace(**priced))

    snapshot = SimpleNamespace(get_snapshot=lambda: SimpleNamespace(find_provider_model=find))
    monkeypatch.setattr(table_of_prices, "find_spec", lambda name: name == "genai_prices")
    monkeypatch.setattr(table_of_prices, "import_module", lambda name: snapshot)
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}
    assert Prices().cost("provider/its-model", usage, 0) == pytest.approx(3.0)
    assert Prices().cost("its-model", usage, 200_000) == pytest.approx(5.0)
    assert Prices().cost("another-model", usage) is None


def test_package_prices_a_known_model():
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    price = table_of_prices._genais_price("claude-opus-4-5-20251101")
    assert price is not None
    assert price.input_cost_per_token == pytest.approx(5e-6)


def test_retired_model_has_another_providers_price(monkeypatch):
    entry = msgspec.Raw(b'{"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}')
    monkeypatch.setattr(
        table_of_prices, "litellms_table", lambda: {"anthropic.claude-old-v1:0": entry}
    )
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    assert Prices().cost("claude-old", usage) == pytest.approx(6e-05)
    assert Prices().cost("other-old", usage) is None


def test_cost_of_a_reply_in_several_lines_counts_once(tmp_path):
    """Releases of Claude Code before 1.0.9 wrote a cost, some of them on each line of a reply."""

    def line(number, reply, cost, **usage):
        message = {"role": "assistant", "id": reply, "model": "m", "usage": usage, "content": []}
        about = {"type": "assistant", "uuid": f"u{number}", "sessionId": "s", "requestId": reply}
        time = f"2025-05-01T10:00:{number:02}Z"
        return {**about, "timestamp": time, "costUSD": cost, "message": message}

    costs = [("one", 0.5), ("one", 0.5), ("two", 0.25), *[(f"r{n}", 0.125) for n in range(40)]]
    lines = [line(n, *cost, input_tokens=9, output_tokens=1) for n, cost in enumerate(costs)]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with foldlog.open("memory:") as histories:
        histories.import_(path)
        (stored,) = histories["s"].stats().models.values()
        histories["s"].view()
        (made,) = histories["s"].stats().models.values()
    assert (stored.cost, made.cost) == (5.75, 5.75)
    assert stored.calls == made.calls == 42
    assert not stored.costs_estimated


def test_price_is_found_by_the_name_at_openrouter(monkeypatch):
    entry = msgspec.Raw(b'{"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}')
    other = msgspec.Raw(b'{"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06}')
    table = {"claude-new-4-5": entry, "gpt-4.1": other, "gpt-4-1": entry}
    monkeypatch.setattr(table_of_prices, "litellms_table", lambda: table)
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    assert Prices().cost("anthropic/claude-new-4.5", usage) == pytest.approx(6e-05)
    assert Prices().cost("openai/gpt-4.1", usage) == pytest.approx(1.2e-05), "its own name is first"


def test_unreadable_prices_are_refused(tmp_path, history):
    for text in [
        "",
        "[]",
        '{"m": 3}',
        '{"m": {"input_cost_per_token": -1}}',
        '{"m": {"input_cost_per_token": "1"}}',
        '{"m": {"input": 1}}',
        f'{{"m": {{"input_cost_per_token_above_{400 * "9"}k_tokens": 1}}}}',
    ]:
        path = tmp_path / "prices.json"
        path.write_text(text)
        with pytest.raises(InvalidArgument, match=r"prices\.json.*write JSON such as"):
            Prices(path)
    with pytest.raises(InvalidArgument, match=r"missing\.json"):
        history.stats(prices=tmp_path / "missing.json")


def test_reply_has_cost_meta_and_time(history):
    at = datetime(2026, 3, 1, tzinfo=UTC)
    calls = [
        {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        for name in ("k", "l")
    ]
    reply = {"role": "assistant", "content": None, "tool_calls": calls, "audio_id": "a"}
    first, second = history.append_reply(reply, cost=0.5, meta={"model": "mine"}, timestamp=at)
    assert first.event.meta == {"cost": 0.5, "model": "mine", "message": {"audio_id": "a"}}
    assert second.event.meta == {}
    assert (first.event.timestamp, second.event.timestamp) == (at, at)
    (figures,) = history.stats().models.values()
    assert (figures.model, figures.cost, figures.prompt_tokens) == ("mine", 0.5, None)
    for wrong in (-1, float("nan"), "1", True):
        with pytest.raises(InvalidArgument, match=r"use a number of US dollars"):
            history.append_reply(reply, cost=wrong)
    assert len(history) == 2


NO_NUMBERS = (None, "0.1", True, float("nan"), float("inf"), 10**400)


@pytest.mark.parametrize(
    "about, cost",
    [
        ({"meta": {"cost": 0.01}}, 0.01),
        ({"metadata": {"condenser": ["digest"]}}, None),
        *(({"metadata": {"cost": no}}, None) for no in NO_NUMBERS),
    ],
)
def test_condensation_has_its_recorded_cost(about, cost, histories):
    condensation = CondensationAction(id=1, forgotten_event_ids=(0,), **about)
    histories.store.ingest("c", [said("hi", id=0), condensation])
    (figures,) = histories["c"].stats().condensations.values()
    assert figures.cost == cost


def test_strategy_without_a_model_costs_nothing(histories):
    for name, condenser in (("ours", "amortized_forgetting"), ("other", "of a friend")):
        metadata = {"condenser": condenser, "outcome": "condensed"}
        condensation = CondensationAction(forgotten_event_ids=[0], metadata=metadata)
        histories[name].append([said("hi"), condensation])
    figures = [
        next(iter(histories[name].stats().condensations.values())) for name in ("ours", "other")
    ]
    assert [figure.cost for figure in figures] == [0.0, None]
    with asking_store(histories.store) as client:
        pages = [client.json("history", {"id": name}) for name in ("ours", "other")]
    for costs in (pages, [change for page in pages for change in page["changes"]]):
        assert [row["cost"] for row in costs] == [0.0, None]


def test_pages_show_costs(tmp_path, histories):
    reply = {"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 1}}
    for name, meta in (
        ("paid", {**reply, "cost": 0.5}),
        ("partly", reply),
        ("partly", {**reply, "model": "x"}),
    ):
        histories[name].append(replied("hm", meta=meta))
    histories["silent"].append(said("hi"))
    path = tmp_path / "p.json"
    path.write_text('{"m": {"input_cost_per_token": 1.0, "output_cost_per_token": 10.0}}')
    with asking_store(histories.store, prices=Prices(path)) as client:
        until(lambda: (page := client.json("conversations"))["counted"] == page["total"])
        page = client.json("conversations")
        assert client.json("fleet")["spent"]["cost"] == 20.5
        models = client.json("models?id=partly")["models"]
        assert client.json("models?id=silent")["models"] == []
    costs = {row["conversation"]: row["spent"]["cost"] for row in page["conversations"]}
    assert costs == {"paid": 0.5, "partly": None, "silent": None}
    assert [(row["model"], row["calls"], row["cost"]) for row in models] == [
        ("m", 1, 20.0),
        ("x", 1, None),
    ]
