"""Lists, figures, the page and the documents of the API show the same tokens of a View."""

import pytest

import foldlog as package
from foldlog._reports.figures.tokens import CountedTokens, event_tokens, view_tokens
from foldlog.condensers import LLM, LLMConfig, TokensUnknown
from foldlog.eventstore import Action, Annotation, Observation, SystemMessage, open_store
from foldlog.projections import Views
from tests.foldlog.records import SAMPLE
from tests.page_samples import hostile_history, usual_history
from tests.said import said
from tests.waiting import until
from tests.web_client import asking_store


def sum_tokens(view, counted):
    """Return the sum of the tokens of each event that a View sends."""
    return sum(counted(view[position]) for position in view.fit_positions)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with package.open("memory:") as sample:
        (imported,) = sample.import_(SAMPLE)
        sample_events = list(imported.events())
    usual = list(usual_history())
    histories = {
        "sample": sample_events,
        "usual": usual,
        "waiting": usual[:3],
        "hostile": hostile_history(5_000),
        "unseen": [
            Annotation(name="note", data={"x": "y" * 100}),
            Observation(tool="t", content="no call", call_id="c"),
        ],
    }
    url = f"sqlite:///{tmp_path_factory.mktemp('sizes')}/history.db"
    with open_store(url) as store:
        for name, events in histories.items():
            store.ingest(name, iter(events))
    return url


def read_served(store, model=None):
    """Return the rows of the list, the document of the fleet, and the tokens on each page."""
    with asking_store(store, model=model) as client:
        until(lambda: (page := client.json("conversations"))["counted"] == page["total"])
        listed = client.json("conversations")
        pages = {
            row["conversation"]: page_tokens(client.json("history", {"id": row["conversation"]}))
            for row in listed["conversations"]
        }
        return listed["conversations"], client.json("fleet"), pages


def page_tokens(history):
    """Return the tokens of a page's newest View, as the script of the page sums them."""
    columns = history["events"]
    spans = dict(history["spans"])
    tokens = dict(enumerate(columns["tokens"])) | {
        summary["id"]: summary["tokens"] for summary in history["summaries"]
    }
    spans |= {summary["id"]: summary["spans"] for summary in history["summaries"]}
    sent = [
        event
        for event, left_at in enumerate(columns["left"])
        if left_at == 0 and columns["sent"][event]
    ]
    sent = [event for event in sent if event not in spans]
    sent += [
        event for event, each in spans.items() if each and each[-1][1] == 0 and len(each[-1][3]) % 2
    ]
    return sum(tokens[event] for event in sent)


def test_every_list_and_page_shows_the_same_tokens(url, foldlog):
    listed = {
        row["conversation"]: row["tokens"]
        for row in foldlog("list --long --json --db", url).document["conversations"]
    }
    with package.open(url) as opened:
        expected = {name: opened[name].lifetimes().sizes[-1] for name in listed}
        rows, fleet, pages = read_served(opened.store)
        assert {name: view_tokens(opened[name].view()) for name in listed} == expected
    assert {row["conversation"]: row["tokens"] for row in rows} == expected
    assert pages == expected
    assert listed == expected
    assert fleet["view_tokens"] == sum(expected.values())
    for name, tokens in expected.items():
        assert foldlog("stats", name, "--json", "--db", url).document["view_tokens"][-1] == tokens
    assert (
        min(expected.values()) == 0 < expected["waiting"] < expected["usual"] < expected["sample"]
    )


def test_model_counts_on_pages_estimates_in_lists(url):
    model = LLM(LLMConfig(model="gpt-4o"))
    with open_store(url) as store:
        rows, _, pages = read_served(store, model)
        views = Views(store)
        counted = CountedTokens(model)
        expected = {name: sum_tokens(views.current(name), counted) for name in pages}
        estimated = {name: view_tokens(views.current(name)) for name in pages}
    assert pages == expected
    assert {row["conversation"]: row["tokens"] for row in rows} == estimated
    assert expected["sample"] < estimated["sample"]


def test_sum_over_view_is_near_its_prompt(url):
    model = LLM(LLMConfig(model="gpt-4o"))
    counted = CountedTokens(model)
    with open_store(url) as store:
        for name, version in (
            ("sample", 2),
            ("sample", 95),
            ("sample", 286),
            ("usual", 3),
            ("usual", 30),
        ):
            view = Views(store).at(name, version)
            exact = model.token_sums(view)[-1]
            assert abs(sum_tokens(view, counted) - exact) <= 3 + 4 * len(view) // 10
    assert counted.estimated == set()


def test_calls_results_and_tools_are_counted():
    call = Action(tool="terminal", arguments={"command": "make"}, call_id="c1", source="agent")
    result = Observation(tool="terminal", content="done " * 50, call_id="c1")
    prompt = SystemMessage(
        content="Help.", tools=({"type": "function", "function": {"name": "terminal"}},)
    )
    counted = CountedTokens(LLM(LLMConfig(model="gpt-4o")))
    assert 5 < counted(call) < 40
    assert 50 <= counted(result) <= 65
    assert counted(prompt) > counted(SystemMessage(content="Help.")) + 3
    assert counted(Annotation(name="note", data={"x": 1})) == 0
    assert counted(said(" \n")) == 0


class FailingTokenizer:
    """A model whose tokenizer fails on one word."""

    model = "example"

    def count_tokens(self, messages, tools=()):
        if "odd" in str(messages):
            raise TokensUnknown("an odd text")
        return 3 + len(messages)


def test_uncountable_event_is_estimated_and_named():
    events = [said("plain"), said("odd " * 10)]
    with open_store("memory:") as store:
        store.ingest("c", iter(events))
        with asking_store(store, model=FailingTokenizer()) as client:
            page = client.json("history?id=c")
        assert (page["tokens_are"], page["counted_as"]) == ("counted", "example")
        assert page["tokens_estimated"] == [1]
        assert page["events"]["tokens"] == [1, event_tokens(events[1])]
        with asking_store(store) as client:
            assert client.json("history?id=c")["tokens_are"] == "estimated"


def test_tokenizer_is_never_downloaded():
    with pytest.raises(TokensUnknown, match="would have to be downloaded"):
        CountedTokens(LLM(LLMConfig(model="huggingface/meta-llama/Llama-3-8b")))
