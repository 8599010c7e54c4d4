"""What calls of models used and cost: one shape for all, and what is not known is not nothing."""

from __future__ import annotations

import json
import re
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import msgspec
import pytest

import foldlog
from foldlog import CondensationAction, CondensationRequest, Message, open as open_histories
from foldlog._cli.stores import open_existing
from foldlog._documents import SavingsDocument
from foldlog._figures import prices
from foldlog._figures.prices import Prices
from foldlog._figures.savings import recorded_cost, saving_of
from foldlog._figures.spending import spent_by, total_of
from foldlog._figures.stored import FiguresOfStore
from foldlog._figures.tables import Where
from foldlog._usage import usage_of
from foldlog._web.conversations import ServedConversations
from foldlog._web.pages import Pages
from foldlog._words.gist import cost_words
from foldlog.errors import InvalidArgument

PRICES = {
    "m": {
        "input_cost_per_token": 1.0,
        "output_cost_per_token": 10.0,
        "cache_read_input_token_cost": 0.1,
    },
    "w": {
        "input_cost_per_token": 1,
        "output_cost_per_token": 10,
        "cache_creation_input_token_cost": 1.25,
    },
    "half": {"input_cost_per_token": 1.0},
}
DETAILS = {
    "prompt_tokens_details": {"cached_tokens": 900},
    "completion_tokens_details": {"reasoning_tokens": 40},
}
ALL = (
    "prompt_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "completion_tokens",
    "reasoning_tokens",
)


def test_usage_has_one_shape_and_no_count_that_nobody_told():
    for told, usage in [
        (
            {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050, **DETAILS},
            (1000, 900, None, 50, 40),
        ),
        (
            {"input_tokens": 9, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 0}},
            (9, 0, None, 5, None),
        ),
        (
            {"input_tokens": 9, "output_tokens": 5, "input_token_details": {"cache_read": 4}},
            (9, 4, None, 5, None),
        ),
        (
            {
                "input_tokens": 4,
                "cache_creation_input_tokens": 3,
                "cache_read_input_tokens": 20,
                "output_tokens": 12,
            },
            (27, 20, 3, 12, None),
        ),
        (
            {"prompt_tokens": 27, "cache_read_input_tokens": 20, "completion_tokens": 1},
            (27, 20, None, 1, None),
        ),
        (
            {"input_tokens": 30, "cached_input_tokens": 20, "reasoning_output_tokens": 2},
            (30, 20, None, None, 2),
        ),
        ({"output_tokens": 5}, (None, None, None, 5, None)),
        ({"total_tokens": 7}, (7, None, None, None, None)),
        (
            {
                "prompt_tokens": 37,
                "completion_tokens": 5,
                "reasoning_tokens": 8,
                "total_tokens": 50,
            },
            (37, None, None, 13, 8),
        ),
        (
            {"input_tokens": 9, "output_tokens": 5, "details": {"reasoning_tokens": 3}},
            (9, None, None, 5, 3),
        ),
        *(
            (nothing, (None,) * 5)
            for nothing in (None, 7, {}, {"prompt_tokens": 0}, {"prompt_tokens": None})
        ),
        ({"prompt_tokens": 300.0, "completion_tokens": "30"}, (300, None, None, 30, None)),
        (
            {"input_tokens": 9.0, "input_tokens_details": {"cached_tokens": "4"}},
            (9, 4, None, None, None),
        ),
    ]:
        assert usage_of(told) == {
            name: count for name, count in zip(ALL, usage, strict=True) if count is not None
        }
    for unread in (-1, 300.5, "many", True, [1], float("nan"), float("inf"), "-3", "1e999", 10**31):
        usage = usage_of({"prompt_tokens": unread, "completion_tokens": 3})
        assert usage == usage_of(usage) == {"completion_tokens": 3}
        assert usage_of({"input_tokens": unread}) == {}


SAID = {"role": "assistant", "content": "a"}
PAID = [
    ("openai-chat", {**SAID, "usage": {"prompt_tokens": 9}, "cost": 0.25}, True),
    ("openai-chat", {**SAID, "usage": {"prompt_tokens": 9, "cost": 0.25}}, True),
    (
        "atif",
        {
            "step_id": 1,
            "source": "agent",
            "message": "a",
            "metrics": {"prompt_tokens": 9, "cost_usd": 0.25},
        },
        True,
    ),
    (
        "anthropic-messages",
        {**SAID, "modelInfo": {"modelId": "m"}, "metrics": {"tokens": {"prompt": 9}, "cost": 0.25}},
        False,
    ),
    (
        "opencode",
        {
            "info": {"id": "m", "role": "assistant", "tokens": {"input": 9}, "cost": 0.25},
            "parts": [],
        },
        False,
    ),
]
"""A reply of 0.25 dollars as programs tell it, and whether one of 0 costs nothing: some write it
without a price.
"""


@pytest.mark.parametrize("format, record, tells_nothing", PAID)
def test_a_cost_that_is_told_is_told_also_where_it_is_a_text_or_nothing(
    tmp_path, format, record, tells_nothing
):
    def spent(cost):
        path = tmp_path / "c.jsonl"
        path.write_text(json.dumps(record).replace("0.25", json.dumps(cost)) + "\n")
        with foldlog.open("memory:") as histories:
            (history,) = histories.import_(path, format=format, findings=print)
            told = history.stats().document().spent
        return told.cost

    assert spent(0.25) == spent("0.25") == 0.25
    assert spent(0) == spent(0.0) == (0.0 if tells_nothing else None)
    assert spent("free") is spent(-1) is None


@pytest.mark.parametrize("unread", [300.5, "many", -5])
@pytest.mark.parametrize(
    "format, record",
    [
        (
            "openai-chat",
            (
                '{"role": "assistant", "content": "a", "usage": {"prompt_tokens": 300,'
                ' "completion_tokens": 30}}'
            ),
        ),
        (
            "gemini-cli",
            '{"id": "g", "type": "gemini", "content": "a", "tokens": {"input": 300, "output": 30}}',
        ),
        (
            "opencode",
            (
                '{"info": {"id": "m", "role": "assistant", "tokens": {"input": 300, "output": 30}},'
                ' "parts": []}'
            ),
        ),
    ],
)
def test_a_count_that_cannot_be_read_is_not_known(tmp_path, format, record, unread):
    """Some languages write each number as a fraction, or as a text."""

    def spent(count):
        path = tmp_path / f"{format}.jsonl"
        path.write_text(
            json.dumps(
                json.loads(record),
            ).replace("300", json.dumps(count))
        )
        with foldlog.open("memory:") as histories:
            (history,) = histories.import_(path, format=format, findings=print)
            (told,) = history.stats().document().models
        return told.prompt_tokens, told.completion_tokens

    assert spent(300.0) == spent("300") == spent(300) == (300, 30)
    assert spent(unread) == (None, 30)


def test_a_call_costs_what_its_tokens_do_where_their_prices_are_known(tmp_path):
    for model, usage, cost in [
        ("m", {"prompt_tokens": 10, "completion_tokens": 1}, 20.0),
        ("provider/m", {"prompt_tokens": 10, "cached_tokens": 5, "completion_tokens": 1}, 15.5),
        (
            "a/b/w",
            {
                "prompt_tokens": 10,
                "cached_tokens": 2,
                "cache_write_tokens": 4,
                "completion_tokens": 1,
            },
            21.0,
        ),
        ("m", {"prompt_tokens": 10}, None),
        ("half", {"prompt_tokens": 10, "completion_tokens": 1}, None),
        ("no such model", {"prompt_tokens": 10, "completion_tokens": 1}, None),
    ]:
        path = tmp_path / "prices.json"
        path.write_text(json.dumps(PRICES))
        assert Prices(path).cost(model, usage) == (None if cost is None else pytest.approx(cost))


def test_prices_of_the_package_have_the_steps_of_long_prompts(monkeypatch):
    class Step(NamedTuple):
        start: int
        price: float

    class Steps(NamedTuple):
        base: float
        tiers: list[Step]

    priced = dict.fromkeys(("cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok"))
    priced |= {"input_mtok": Steps(2.0, [Step(200_000, 4.0)]), "output_mtok": 10.0}

    def find(model, *more):
        if model != "its-model":
            raise LookupError(model)
        return None, SimpleNamespace(get_prices=lambda at: SimpleNamespace(**priced))

    snapshot = SimpleNamespace(get_snapshot=lambda: SimpleNamespace(find_provider_model=find))
    monkeypatch.setattr(prices, "find_spec", lambda name: name == "genai_prices")
    monkeypatch.setattr(prices, "import_module", lambda name: snapshot)
    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 100_000}
    assert Prices().cost("provider/its-model", usage, 0) == pytest.approx(3.0)
    assert Prices().cost("its-model", usage, 200_000) == pytest.approx(5.0)
    assert Prices().cost("another-model", usage) is None


def test_the_package_prices_a_model_that_it_knows():
    pytest.importorskip("genai_prices", reason="genai-prices is not installed")
    price = prices._genais_price("claude-opus-4-5-20251101")
    assert price is not None
    assert price.input_cost_per_token == pytest.approx(5e-6)


def test_a_model_that_its_maker_no_longer_serves_has_the_price_that_another_provider_has(
    monkeypatch,
):
    entry = msgspec.Raw(b'{"input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05}')
    monkeypatch.setattr(prices, "litellms_table", lambda: {"anthropic.claude-old-v1:0": entry})
    assert Prices().cost(
        "claude-old", {"prompt_tokens": 10, "completion_tokens": 2}
    ) == pytest.approx(6e-05)
    assert Prices().cost("other-old", {"prompt_tokens": 10, "completion_tokens": 2}) is None


def test_prices_that_cannot_be_read_are_refused(tmp_path):
    for text in [
        "",
        "[]",
        '{"m": 3}',
        '{"m": {"input_cost_per_token": -1}}',
        '{"m": {"input_cost_per_token": "1"}}',
        '{"m": {"input": 1}}',
    ]:
        path = tmp_path / "prices.json"
        path.write_text(text)
        with pytest.raises(InvalidArgument, match=r"prices\.json.*give JSON such as"):
            Prices(path)
        with (
            pytest.raises(InvalidArgument, match=r"missing\.json"),
            foldlog.open("memory:") as histories,
        ):
            histories["c"].stats(prices=tmp_path / "missing.json")


def test_a_reply_has_a_cost_meta_and_a_time():
    at = datetime(2026, 3, 1, tzinfo=UTC)
    call = {"id": "k", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    reply = {
        "role": "assistant",
        "content": None,
        "tool_calls": [call, {**call, "id": "l"}],
        "audio_id": "a",
    }
    with foldlog.open("memory:") as histories:
        one, two = histories["c"].append_reply(
            reply, cost=0.5, meta={"model": "mine"}, timestamp=at
        )
        told = {"cost": 0.5, "model": "mine", "message": {"audio_id": "a"}}
        assert (one.event.meta, two.event.meta) == (told, {})
        assert {each.event.timestamp for each in (one, two)} == {at}
        (figures,) = histories["c"].stats().models.values()
        assert (figures.model, figures.cost, figures.prompt_tokens) == ("mine", 0.5, None)
        for wrong in (-1, float("nan"), "1", True):
            with pytest.raises(InvalidArgument, match=r"give US dollars"):
                histories["c"].append_reply(reply, cost=wrong)
        assert len(histories["c"]) == 2


def test_a_cost_that_is_no_number_is_not_known():
    for cost in (None, "0.1", True, float("nan"), float("inf")):
        assert (
            recorded_cost(CondensationAction(forgotten_event_ids=(1,), metadata={"cost": cost}))
            is None
        )
    imported = CondensationAction(forgotten_event_ids=(1,), meta={"cost": 0.01, "model": "m"}, id=3)
    assert recorded_cost(imported) == 0.01


def test_the_sum_of_condensations_has_what_is_known_of_each_and_a_declined_one_costs_only():
    def saving(number: int, cost: float | None = None, **metadata: str) -> SavingsDocument:
        made = CondensationAction(
            id=number, forgotten_event_ids=(1,), metadata={"cost": cost, **metadata}
        )
        return saving_of(made, {2: 900, 3: 300, 4: 275, 7: 5})

    some = [saving(2, 0.5), saving(3), saving(5, 0.25), saving(7, 0.25, outcome="declined")]
    total = SavingsDocument(condensations=3, tokens_saved=625, cost=1.0)
    assert total_of(SavingsDocument(), some) == total
    assert total_of(SavingsDocument(), [saving(5)]) == SavingsDocument(condensations=1)


@pytest.mark.parametrize("format", ["openhands-v1", "copilot-cli"])
def test_a_system_prompt_that_a_newer_one_replaces_is_no_condensation_and_saves_nothing(
    foldlog, write, format
):
    prompt = {"source": "agent", "kind": "SystemPromptEvent", "tools": []}
    records = [
        {**prompt, "id": "a", "system_prompt": {"type": "text", "text": "old " * 500}},
        {
            **prompt,
            "id": "b",
            "system_prompt": {"type": "text", "text": "new"},
            "kind": "SystemPromptUpdateEvent",
        },
    ]
    if format == "copilot-cli":
        told = [{"role": "system", "content": said} for said in ("old " * 500, "new")]
        begun = {
            "type": "session.start",
            "data": {"sessionId": "c1"},
            "id": "s",
            "timestamp": None,
            "parentId": None,
        }
        records = [
            begun,
            *(
                {**begun, "type": "system.message", "id": str(n), "data": d}
                for n, d in enumerate(told)
            ),
        ]
    write("c1.jsonl", records)
    assert foldlog("import", "c1.jsonl", "--format", format).status == 0
    with open_existing("foldlog.db") as store:
        ((_, sums),) = FiguresOfStore(store).of(list(store.iter_conversations()))
    assert (sums.condensations, sums.tokens_saved) == (0, 0)
    told = foldlog("stats", "c1", "--json").document
    assert (
        told["events"]["system"],
        told["events"].get("condensation"),
        told["condensations"],
    ) == (3, None, {})
    assert len(foldlog("log", "c1", "--kind", "system", "--json").document["events"]) == 3


def seen(histories):
    return [
        one.overview
        for _, one in FiguresOfStore(histories.store).of(
            histories.store.iter_conversations(), whole=False
        )
    ]


def spent(histories, prices=None):
    of = FiguresOfStore(histories.store).of(histories.store.iter_conversations())
    return {row.id: spent_by(one.calls, prices or Prices()) for row, one in of}


def test_what_a_redaction_takes_has_cost_no_less_and_is_no_activity():
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "cached_tokens": 50}
    metrics = {
        "usage": {"prompt_tokens": 9, "completion_tokens": 3},
        "cost": 0.25,
        "latency_s": 1.5,
        "attempts": 2,
    }
    report = {
        "condenser": "llm",
        "response": {"id": "r", "model": "sum"},
        "metrics": metrics,
        "prompt": "Ann said",
    }
    meta = {"model": "m", "usage": usage, "cost": 0.5, "title": "Ann's", "note": {"cost": 1}}
    at = datetime(2026, 3, 1, tzinfo=UTC)
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append(
            [Message(source="user", content=f"I am Ann {n}", timestamp=at) for n in range(40)]
        )
        history.append(Message(source="agent", content="hello Ann", meta=meta, timestamp=at))
        metadata = {"condenser_meta": [report], "text": "Ann"}
        forget = CondensationAction(
            forgotten_event_ids=[1], summary="Ann", summary_offset=1, metadata=metadata
        )
        history.append(forget)
        before, (listed,) = history.stats().models, seen(histories)
        for event in range(42):
            history.redact(event, reason="asked to")
        (now,) = seen(histories)
        assert "Ann" not in repr(list(history.events()))
        assert history.stats().models == before
        assert {each.cost for each in before.values()} == {0.5, 0.25}
        assert now.last_event_at == listed.last_event_at


def test_a_strategy_without_a_model_costs_nothing_and_of_another_nothing_is_known():
    with foldlog.open(
        "memory:", condenser={"type": "amortized_forgetting", "max_size": 10}
    ) as histories:
        histories["ours"].append(
            [Message(source=("user", "agent")[n % 2], content=f"{n}") for n in range(20)]
        )
        histories["ours"].step()
        histories["other"].append([Message(source="user", content=f"{n}") for n in range(4)])
        histories["other"].append(
            CondensationAction(forgotten_event_ids=[1], metadata={"condenser": "of a friend"})
        )
        figures = [
            next(iter(histories[name].stats().condensations.values())) for name in ("ours", "other")
        ]
        pages = [Pages(histories.store).history(name) for name in ("ours", "other")]
    for told in (figures, pages):
        assert [one.cost for one in told] == [0.0, None]
    assert [change.cost for page in pages for change in page.changes] == [0.0, None]


def fleet(served):
    """The figures over all conversations, when all are counted."""
    while served.list().counted < served.list().total:
        pass
    return served.fleet("")


def serving(store, **how):
    return closing(ServedConversations(store, **how))


def named(lines, name):
    (line,) = (line for line in lines if line.split()[:1] == [name])
    return line


@pytest.mark.parametrize("longest", [0, 1])
def test_a_reply_of_which_a_copy_was_cut_short_is_counted_once_with_its_largest_usage(
    foldlog, tmp_path, longest
):
    """Its id and that of its request say that it is one; another usage is that of a copy which
    ended before it did.
    """
    for number in range(2):
        session = f"{number:08d}-1111-4111-8111-111111111111"
        shared = {"sessionId": session, "timestamp": "2026-03-01T10:00:01.000Z"}
        usage = {"input_tokens": 1000, "output_tokens": 611 if number == longest else 36}
        said = {"role": "assistant", "id": "msg_1", "model": "m", "type": "message", "usage": usage}
        records = [
            {
                "type": "user",
                "uuid": "a",
                "parentUuid": None,
                "message": {"role": "user", "content": "list the files"},
            },
            {"type": "assistant", "uuid": "b", "parentUuid": "a", "requestId": "req_1"}
            | {"message": said | {"content": [{"type": "text", "text": "I list them."}]}},
        ]
        lines = [json.dumps(record | shared) for record in records]
        (tmp_path / f"{session}.jsonl").write_text("".join(f"{line}\n" for line in lines))
        assert foldlog("import", f"{session}.jsonl").status == 0
    (model,) = json.loads(foldlog("stats", "--json").out)["models"]
    assert [model[name] for name in ("calls", "prompt_tokens", "completion_tokens")] == [
        1,
        1000,
        611,
    ]


def say(histories, name, **meta):
    histories[name].append(Message(source="agent", content="hm", meta=meta))


def test_lists_and_pages_say_what_a_conversation_cost_and_count_on(foldlog, tmp_path, monkeypatch):
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    (tmp_path / "p.json").write_text(json.dumps(PRICES))
    with open_histories("foldlog.db") as histories:
        say(histories, "told", model="m", usage=usage, cost=0.5)
        say(histories, "priced", model="m", usage=usage)
        say(histories, "partly", model="m", usage=usage)
        say(histories, "partly", model="x", usage=usage)
        say(histories, "unknown", model="x", usage=usage)
        say(histories, "half", model="x")
        histories["silent"].append(Message(source="user", content="hi"))
    shown = {
        "partly": "unknown",
        "priced": "≈ $20.0000",
        "half": "unknown",
        "silent": "unknown",
        "told": "$0.5000",
    }
    for _ in range(2):  # counted, then kept
        lines = foldlog("list", "--long", "--prices", "p.json").out.splitlines()
        assert [
            name
            for name, cost in {**shown, "unknown": "\tunknown"}.items()
            if cost in named(lines, name)
        ] == [
            *shown,
            "unknown",
        ]
    monkeypatch.setenv("COLUMNS", "150")
    legend = "≈ the price of their tokens stands for calls that tell no cost"
    assert (
        foldlog("list", "--long", "--prices", "p.json")
        .out.splitlines()[-1]
        .strip()
        .startswith(legend)
    )
    assert "stands for" not in foldlog("list", "--long", "--match", "told").out, (
        "no cell of it has a mark"
    )
    monkeypatch.delenv("COLUMNS")
    unpriced = "2 unknown costs: the models have no price (x): give --prices FILE"
    silent = "2 unknown costs: no call records model and usage"
    told = foldlog("list", "--long", "--prices", "p.json").err
    assert unpriced in told
    assert silent in told
    assert "no cost: no call records" in foldlog("stats", "silent").out
    # prices ask for the cost
    listed = foldlog("list", "--prices", "p.json", "--json").document["conversations"]
    assert {one["conversation"]: one["spent"]["cost"] for one in listed}["priced"] == 20.0
    with open_histories("foldlog.db") as histories:
        say(histories, "told", cost=0.25, model="m")
        read = []
        log = type(histories.store).log
        monkeypatch.setattr(
            type(histories.store), "log", lambda *given: read.append(given[1:]) or log(*given)
        )
        told = spent(histories)["told"]
        assert (told.cost, told.calls, [each for each in read if each != ("told", 0, 30)]) == (
            0.75,
            2,
            [("told", 1, 2)],
        )
    listed = {
        one["conversation"]: one["spent"]
        for one in foldlog("list", "-l", "--json").document["conversations"]
    }
    tokens = {"prompt_tokens": 10, "completion_tokens": 1}
    assert listed["told"] == {
        "calls": 2,
        "condenser_calls": 0,
        **tokens,
        "cost": 0.75,
        "costs_estimated": 0,
    }
    assert foldlog("stats", "told", "--json").document["spent"] == listed["told"]
    told = foldlog("stats", "--prices", "p.json")
    assert re.search(r"in all +7 +≈ \$40.7500\n", told.out)
    assert "of 6 conversations, 2 without usage, 2 with calls that have no price" in told.err
    assert "no price of x: give --prices FILE" in told.err
    document = foldlog("stats", "--prices", "p.json", "--json").document
    assert [document[name] for name in ("without_usage", "without_cost", "unpriced")] == [
        2,
        2,
        ["x"],
    ]
    with open_existing("foldlog.db") as store:
        pages = Pages(store, prices=Prices(Path("p.json")))
        models = pages.models("partly").models
        assert [(one.day, one.model, one.calls, one.cost) for one in models] == [
            ("", "m", 1, 20.0),
            ("", "x", 1, None),
        ]
        assert pages.history("silent").models == ()
    prices = Prices(Path("p.json"))
    with open_existing("foldlog.db") as store, serving(store, prices=prices) as served:
        assert fleet(served).spent.cost == 40.75
        costs = {one.conversation: one.spent.cost for one in served.list().conversations}
        assert costs == {
            "told": 0.75,
            "priced": 20.0,
            **dict.fromkeys(("partly", "unknown", "half", "silent")),
        }


def test_a_tiny_cost_is_not_shown_as_none(foldlog):
    with open_histories("foldlog.db") as histories:
        say(histories, "c", cost=0.0000123, model="m")
        say(histories, "free", cost=0.0, model="m")
    assert "$0.000012" in foldlog("stats", "c").out
    assert "unknown  $0.0000\n" in foldlog("stats", "free").out
    assert [cost_words(cost) for cost in (None, 0.0001, 0.00009996, 1e-300)] == [
        "unknown",
        "$0.0001",
        "$0.000100",
        "$0.000000000000",
    ]


def test_a_sum_of_costs_has_no_digits_of_binary_fractions(foldlog):
    with open_histories("foldlog.db") as histories:
        for _ in range(3):
            say(histories, "c", cost=0.1, model="m")
    assert foldlog("stats", "c", "--json").document["spent"]["cost"] == 0.3


def test_a_fork_counts_what_it_did_itself(foldlog):
    def fail(history, number):
        call = {
            "id": f"k{number}",
            "type": "function",
            "function": {"name": "run", "arguments": "{}"},
        }
        history.append_reply({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append_tool_result(f"k{number}", "bad " * 9, is_error=True)

    def condense(history, *forgotten):
        history.append(
            [CondensationAction(forgotten_event_ids=forgotten, metadata={"condenser": "digest"})]
        )

    with open_histories("foldlog.db") as histories:
        parent = histories["parent"]
        parent.append({"role": "user", "content": "word " * 100})
        for number in range(3):
            fail(parent, number)
        condense(parent, 0)
        parent.append([CondensationRequest()])
        fork = parent.fork(9, "fork")
        condense(fork, 1, 2)
        fail(fork, 3)
        fork.fork(10, "second").append({"role": "user", "content": "x"})
        stored, only_fork = FiguresOfStore(histories.store), Where(only=["fork"])
        stored.bring_up_to_date(only_fork)
        digest = stored.totals(only_fork).condensations["digest"]
        assert (stored.reasons(only_fork).keys(), digest.made, digest.events_forgotten) == (
            {"asked for"},
            1,
            2,
        )
    for names, events, errors, made in (
        ((), 13, 4, 2),
        (("parent", "second"), 10, 3, 1),
        (("parent", "fork"), 12, 4, 2),
        (("fork",), 3, 1, 1),
    ):
        for _ in range(2):
            told = foldlog("stats", *names, "--json").document
            assert (told["events"]["total"], sum(told["days"].values()), told["errors"]) == (
                events,
                events,
                errors,
            )
            assert told["tools"] == {"run": {"calls": errors, "errors": errors}}
            assert told["condensations"]["digest"]["made"] == made
    listed = {
        one["conversation"]: one
        for one in foldlog("list", "--long", "--json").document["conversations"]
    }
    assert [listed[name]["errors"] for name in ("parent", "fork", "second")] == [3, 1, 0]
    with open_existing("foldlog.db") as store, serving(store) as served:
        told = fleet(served)
        assert (told.events, told.condensations) == (13, 2)
        assert {one.reason: one.condensations for one in told.reasons} == {
            "no reason given": 1,
            "asked for": 1,
        }
