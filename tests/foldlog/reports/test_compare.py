"""``foldlog compare``: a history under condensers that it never had."""

import sys

import msgspec
import pytest

import foldlog as library
from foldlog.eventstore import Action, CondensationAction, Observation
from foldlog.eventstore.errors import install_command
from tests.condensers.openai_server import Failure, OpenAIServer, Text
from tests.said import replied, said

CALLS = 30


def step(n):
    return Action(
        tool="run", arguments={"command": f"step {n}"}, call_id=f"c{n}", response_id=f"r{n}"
    )


def result_text(n):
    return f"done with {n} " * 20


def append(conversation, *events):
    with library.open("foldlog.db") as histories:
        histories[conversation].append([*events])


def reply_of(model):
    return replied("hm", meta={"model": model})


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A store with one history, ``c1``, in which an agent makes ``CALLS`` calls; a condensation is
    recorded in it.
    """
    monkeypatch.chdir(tmp_path)
    events = [said("mend the parser")]
    for n in range(1, 2 * CALLS, 2):
        events += step(n), Observation(tool="run", call_id=f"c{n}", cause=n, content=result_text(n))
    append("c1", *events, CondensationAction(forgotten_event_ids=(1, 2)))


@pytest.fixture
def config(tmp_path):
    """``config("digest", "max_size = 20")``: a TOML file of a condenser of that type, named after
    it.
    """

    def written(kind, *lines, name=None):
        path = tmp_path / (name or f"{kind}.toml")
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([f'[condenser]\ntype = "{kind}"', *lines]))
        return path.relative_to(tmp_path)

    return written


def model_at(url):
    return [
        f'[llm]\nmodel = "openai/gpt-4o-mini"\nbase_url = "{url}"\napi_key = "key"\nretries = 0'
    ]


def by_name(ran):
    assert (ran.status, ran.err) == (0, "")
    return {row["strategy"]: row for row in ran.document["strategies"]}


def test_condensers_are_replayed_without_writing(foldlog, work, config, tmp_path):
    before = (tmp_path / "foldlog.db").read_bytes()
    configs = [config("digest", "max_size = 20"), config("recent", "max_events = 9")]
    ran = foldlog("compare c1", *(f"--config={path}" for path in configs), "--json")
    rows = by_name(ran)
    assert list(rows) == ["default", "digest", "recent", "noop"]
    assert rows["recent"]["parameters"]["max_events"] == 9
    assert {row["turns"] for row in rows.values()} == {CALLS}
    digest = rows["digest"]
    assert digest["condensations"] == len(digest["condensed_before"]) > 2
    assert [call["before"] for call in digest["calls"]] == [*range(1, 2 * CALLS, 2)]
    assert sum(call["tokens"] for call in digest["calls"]) == digest["tokens_sent"]
    assert (ran.document["version"], ran.document["counted_as"]) == (2 * CALLS + 2, "gpt-4o")
    assert (tmp_path / "foldlog.db").read_bytes() == before


def test_limits_are_counted_as_in_an_agent(foldlog, work, config):
    file = config("digest", "max_tokens = 1500")
    shown = []
    for model, says in (
        (None, "Condensers compare estimated tokens with their limits"),
        (
            "gpt-4o",
            "open its store with agent_llm=LLM(LLMConfig(model='gpt-4o')).",
        ),
    ):
        agent_llm = None if model is None else library.LLM(library.LLMConfig(model=model))
        with library.open("memory:", condenser=str(file), agent_llm=agent_llm) as histories:
            run = histories["run"]
            views = []
            run.append(said("mend the parser"))
            for n in range(1, 2 * CALLS, 2):
                views.append(len(run.prepare()))
                run.append(step(n))
                run.append_tool_result(f"c{n}", result_text(n))
        named = [] if model is None else ["--agent-model", model]
        row = by_name(foldlog("compare c1 --config", file, *named, "--json"))["digest"]
        assert [call["events"] for call in row["calls"]] == views
        assert says in foldlog("compare c1 --config", file, *named).out
        shown.append(views)
    assert shown[0] != shown[1]


def test_default_limit_is_that_of_the_model(foldlog, work, monkeypatch):
    table = {"tiny-model": msgspec.Raw(b'{"max_input_tokens": 1000, "max_output_tokens": 100}')}
    monkeypatch.setattr("foldlog.condensers.models.limits.litellms_table", lambda: table)
    rows = by_name(foldlog("compare c1 --json"))
    assert (rows["default"]["tokens_max"], rows["default"]["condensations"]) == (32_000, 0)
    append("c1", reply_of("a/tiny-model"), reply_of("other"), said("x" * 3_000), reply_of("other"))
    strategies = foldlog("compare c1 --json").document["strategies"]
    rows = {row["strategy"]: row for row in strategies}
    assert (rows["default"]["tokens_max"], rows["default"]["condensations"]) == (800, 2)
    assert rows["max_tokens = 32000"]["condensations"] == 0


@pytest.mark.parametrize("line", ["compare c1", "condense c1 --dry-run", "report c1"])
def test_unknown_model_is_named_once(foldlog, work, line):
    ran = foldlog(f"{line} --agent-model gpt-99")
    assert (ran.status, ran.err) == (
        0,
        (
            "foldlog: note: litellm does not know the model 'gpt-99', so its tokens are counted with "
            "litellm's general tokenizer, and its limit is unknown\n"
        ),
    )
    force = "--force" if "report" in line else ""
    with_known_model = foldlog(f"{line} {force} --agent-model gpt-4o --json")
    assert (with_known_model.status, with_known_model.err) == (0, "")


def test_usage_of_a_summarizer_is_shown(foldlog, work, config):
    with OpenAIServer(Text("so far, so good")) as server:
        file = config("llm", "max_size = 20", *model_at(server.url))
        _, row, *_ = by_name(foldlog("compare c1 --config", file, "--json")).values()
        request_count = len(server.requests)
        sent = sum(request.tokens for request in server.requests)
        out = foldlog("compare c1 --config", file).out
    assert row["condensations"] == request_count > 2
    assert row["condenser_tokens"] > sent
    assert row["tokens_peak"] == max(call["tokens"] for call in row["calls"])
    assert row["condenser_cost"] > 0
    assert "for the condenser's own model, tokens" in out
    assert "cost of the condenser's own model" in out


def test_unknown_price_is_not_zero(foldlog, work, config):
    with OpenAIServer(Text("so far, so good")) as server:
        (address,) = model_at(server.url)
        file = config("llm", "max_size = 20", address.replace("gpt-4o-mini", "stub"))
        ran = foldlog("compare c1 --json --config", file, "--config", config("noop"))
        shown = foldlog("compare c1 --config", file, "--config", config("noop")).out
    default, model, noop = ran.document["strategies"]
    assert [row["condenser_cost"] for row in (default, model, noop)] == [0, None, 0]
    assert model["condenser_tokens"] > 0
    for verdict in ("\n".join(ran.document["verdict"]), shown):
        assert "the price of its own model is unknown." in verdict
        assert verdict.count("its own model costs nothing.") == 2
    (line,) = (
        line for line in shown.splitlines() if line.startswith("cost of the condenser's own model")
    )
    assert line.split()[-3:] == ["$0.0000", "unknown", "$0.0000"]


@pytest.mark.parametrize("how", ["refused", "not there"])
def test_unreachable_model_ends_the_command(foldlog, work, config, tmp_path, how):
    with OpenAIServer(Failure(401, "no such key")) as server:
        url = server.url if how == "refused" else "http://127.0.0.1:9/v1"
        good = config("noop")
        file = config("llm", "max_size = 20", *model_at(url))
        arguments = ["--config", good, "--config", file, "--curve", "views.svg"]
        for options in ([], ["--json"]):
            ran = foldlog("compare c1", *arguments, *options)
            assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
            assert (
                "llm cannot be compared: model 'openai/gpt-4o-mini' gave no usable answer"
                in ran.err
            )
        assert len(server.requests) == (2 if how == "refused" else 0)
    assert not (tmp_path / "views.svg").exists()


def test_without_litellm_tokens_are_estimated(foldlog, work, monkeypatch):
    monkeypatch.setitem(sys.modules, "litellm", None)
    ran = foldlog("compare c1")
    assert (ran.status, install_command("llm") in ran.out) == (0, True)
    assert foldlog("compare c1 --json").document["counted_as"] is None
    for columns, is_left_out in ((100, False), (54, True)):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = foldlog("compare c1").out.splitlines()
        assert max(map(len, lines)) <= columns
        assert any("also shows" in line for line in lines) is is_left_out


def test_a_given_price_needs_no_litellm(foldlog, work, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "litellm", None)
    (tmp_path / "prices.json").write_text(
        '{"own": {"input_cost_per_token": 0.5, "output_cost_per_token": 1}}'
    )
    for model in (("--agent-model", "own"), ()):
        ran = foldlog("compare c1", *model, "--prices", "prices.json")
        assert "At the price of own: $500,000.00 for a million new tokens" in ran.out
        assert install_command("llm") in ran.out
    assert foldlog("compare c1 --agent-model other --prices prices.json").status == 2
    for unreadable in (b'{"\xff": {}}', b'{"m": ' + 100_000 * b"[" + 100_000 * b"]" + b"}"):
        (tmp_path / "prices.json").write_bytes(unreadable)
        assert (
            "the prices in 'prices.json' cannot be read"
            in foldlog("compare c1 --prices prices.json").err
        )
    (tmp_path / "prices.json").write_text("{}")
    assert "name the agent's model with" in foldlog("compare c1 --prices prices.json").err


def test_model_of_the_agent_is_suggested(foldlog, work, config, monkeypatch):
    metadata = {"model": "small", "usage": {"input_tokens": 9}}
    condensation = CondensationAction(forgotten_event_ids=(1,), metadata=metadata)
    append(
        "c2",
        said("hi"),
        *map(reply_of, ("some/a", "b c", "b c")),
        condensation,
        condensation,
        condensation,
    )
    noop = "--config", config("noop")
    assert foldlog("compare c2", *noop).err == (
        "foldlog: note: the agent's replies come from b c; to use the tokenizer and price of this "
        "model, add "
        "--agent-model 'b c'\n"
    )
    assert foldlog("compare c2", *noop, "--agent-model", "gpt-4o").err == ""
    append("c3", said("hi"), said("go on"), condensation)
    assert foldlog("compare c3", *noop).err == "", "only a summarizer names its model"
    monkeypatch.setitem(sys.modules, "litellm", None)  # nothing counts as that model then
    assert foldlog("compare c2", *noop).err == ""
