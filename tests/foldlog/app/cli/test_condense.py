"""``foldlog condense``."""

import json
import re
import sys
from typing import Literal

import pytest

from foldlog.condensers import CondenserConfig, NoOpCondenser
from foldlog.condensers.config import registry
from foldlog.eventstore import Action, Message, Observation, SystemMessage, open_store
from foldlog.eventstore.errors import install_command
from tests.condensers.openai_server import Failure, OpenAIServer, Text
from tests.how_many import some
from tests.said import said

KEY = "sk-a-secret-that-no-one-may-see"
DB = "sqlite:///foldlog.db"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A store with one history, ``c1``, in which an agent makes twenty calls."""
    monkeypatch.chdir(tmp_path)
    events = [
        SystemMessage(content="be an agent"),
        said("mend the parser"),
    ]
    for n in range(2, 42, 2):
        events.append(
            Action(
                tool="run", arguments={"command": f"step {n}"}, call_id=f"c{n}", response_id=f"r{n}"
            )
        )
        events.append(
            Observation(tool="run", call_id=f"c{n}", cause=n, content=f"done with {n} " * 20)
        )
    with open_store(DB) as store:
        store.append("c1", events, expected_version=0)


@pytest.fixture
def config(tmp_path):
    """``config(text)``: a TOML file of that text."""

    def written(text, name="config.toml"):
        (tmp_path / name).write_text(text)
        return name

    return written


def asking(server, *lines):
    """Return a configuration with a model at ``server``."""
    own = "\n".join(lines)
    url = server if isinstance(server, str) else server.url
    return (
        f'[condenser]\ntype = "llm"\n{own}\n'
        f'[llm]\nmodel = "openai/gpt-4o-mini"\nbase_url = "{url}"\napi_key = "{KEY}"\nretries = 0\n'
    )


def events_of(conversation="c1"):
    with open_store(DB) as store:
        return list(store.events(conversation))


def stored_bytes(tmp_path):
    return b"".join(path.read_bytes() for path in sorted(tmp_path.glob("foldlog.db*")))


@pytest.mark.parametrize("agent, estimated", [("", True), ("--agent-model gpt-4o", None)])
def test_limit_is_estimated_without_a_model(foldlog, work, config, agent, estimated):
    small = config('[condenser]\ntype = "digest"\nmax_tokens = 600\n')
    document = foldlog(f"condense c1 --config {small} {agent} --dry-run --json").document
    assert (document["metadata"]["tokens_max"], document["metadata"].get("tokens_estimated")) == (
        600,
        estimated,
    )
    assert document["tokens"]["counted_as"] == "gpt-4o"


def test_narrow_terminal_wraps_texts(work, foldlog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "45")
    shown = foldlog("condense c1 --dry-run").out
    texts = shown[shown.index("  why") :].splitlines()
    headings = [line.split()[0] for line in texts if line[:11].strip()]
    assert headings == ["why", "forgot", "View", "tokens", "cost", "instead"]
    assert len(texts) > len(headings)


def test_model_is_asked_and_its_cost_shown(foldlog, work, config, tmp_path):
    with OpenAIServer(Text("The parser is mended.")) as server:
        file = config(asking(server, "max_size = 20"))
        document = foldlog("condense c1 --config", file, "--json").document
        shown = foldlog("condense c1 --config", file, "--dry-run")
        assert len(server.requests) == 2
    assert document["summary"]["text"].startswith("The parser is mended.")
    assert (document["condenser"], document["reason"]) == ("llm", "events, request")
    spent = document["model"]
    assert (spent["models"], spent["calls"], spent["failed"]) == (["gpt-4o-mini"], 1, 0)
    assert spent["cost"] == document["metadata"]["cost"] > 0
    assert spent["tokens"] > server.requests[0].tokens
    assert re.search(r"cost +\$0\.\d*[1-9]\d*: 1 call of gpt-4o-mini", shown.out)
    assert KEY not in shown.out + json.dumps(document)
    assert KEY.encode() not in stored_bytes(tmp_path)


OUT_OF_REACH = {
    "a server that is not there": None,
    "a key that is refused": Failure(401, f"Incorrect API key provided: {KEY}"),
    "a server that is broken": Failure(500, "out of order"),
    "a reply without text": Text(""),
    "a reply that was cut off": Text("The parser", finish_reason="length"),
}


@pytest.fixture(params=some(OUT_OF_REACH.values(), 3))
def without_a_model(request, foldlog, work, config, tmp_path):
    """``without_a_model(*lines)``: condense with a model that gives no summary; the key is shown
    and stored nowhere.
    """

    def run(*lines):
        with OpenAIServer(request.param or Text("")) as server:
            address = server if request.param else "http://127.0.0.1:9/v1"
            ran = foldlog("condense c1 --config", config(asking(address, *lines)), "--json")
        assert KEY not in ran.out + ran.err
        assert KEY.encode() not in stored_bytes(tmp_path)
        return ran

    return run


def test_digest_replaces_a_missing_summary(foldlog, without_a_model):
    ran = without_a_model()
    assert ran.status == 0
    assert (ran.document["outcome"], ran.document["model"]["failed"]) == ("condensed", 1)
    assert "made a digest instead" in ran.err
    made = events_of()[-1]
    assert (made.metadata["condenser"], made.metadata["instead_of"]) == ("digest", "llm")
    assert "the model failed" in foldlog("why c1 5").out


def test_failed_summary_without_a_fallback(foldlog, without_a_model):
    ran = without_a_model("fallback = false")
    assert ran.status == 1
    *notes, error = ran.err.splitlines()
    assert all('"level":"note"' in note for note in notes), "the notes come from the core's log"
    assert "conversation 'c1' stays as it is" in error
    assert (ran.document["outcome"], ran.document["model"]["failed"] > 0) == ("declined", True)
    *others, _, declined = events_of()
    assert len(others) == 42
    assert (declined.metadata["outcome"], declined.forgotten.intervals) == ("declined", ())
    assert "failure" in declined.metadata["condenser_meta"][-1]
    assert foldlog("view c1 --json").document["ids"] == list(range(42))
    assert foldlog("condense c1").status == 0, (
        "the request was answered, and the history can be condensed again"
    )


def test_unanswered_request_is_a_finding(foldlog, work, config, monkeypatch):
    class ShyConfig(CondenserConfig):
        """Says that it answers requests."""

        type: Literal["shy"] = "shy"

    class Shy(NoOpCondenser):
        type = "shy"

        def handles_condensation_requests(self):
            return True

    monkeypatch.setitem(registry.CONDENSER_REGISTRY, ShyConfig, Shy)
    ran = foldlog("condense c1 --config", config('[condenser]\ntype = "shy"\n'))
    assert (ran.status, ran.out) == (1, "")
    assert "the condenser 'shy' did not condense" in ran.err


def test_larger_view_is_noted(foldlog, monkeypatch):
    with open_store(DB) as store:
        messages = [Message(source=source, content="ok") for source in ("user", "agent", "user")]
        store.append("few", messages, expected_version=0)
    monkeypatch.setattr(
        "foldlog.condensers.strategies.summarizing.tokens_of", lambda view, agent_llm: None
    )
    for option, grew in (("--dry-run", "would grow"), ("--json", "grew")):
        assert re.search(
            rf"the View {grew} from \d+ to \d+ tokens", foldlog("condense few", option).err
        )


def test_tokens_are_estimated_without_litellm(foldlog, work, monkeypatch, config):
    monkeypatch.setitem(sys.modules, "litellm", None)
    ran = foldlog("condense c1 --dry-run")
    assert ran.status == 0
    assert re.search(r"tokens +≈ [\d,]+ → ≈ [\d,]+; to count them: pip install", ran.out)
    assert foldlog("condense c1 --dry-run --json").document["tokens"] is None
    file = config(asking("http://localhost:1"))
    for refused in ("--agent-model gpt-4o", f"--config {file}"):
        ran = foldlog(f"condense c1 {refused}")
        assert (ran.status, ran.out) == (2, "")
        assert install_command("llm") in ran.err
    assert len(events_of()) == 42


def test_view_is_condensed_on_the_way_to_another_agent(
    foldlog, work, config, tmp_path, monkeypatch
):
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    window = config('[condenser]\ntype = "conversation_window"')
    whole = foldlog("continue c1 --in codex --json").document
    condensed = foldlog(f"continue c1 --in codex --view-of {window} --json").document
    assert 0 < condensed["tokens"] < whole["tokens"]
    (row,) = (row for row in foldlog("list --json").document["conversations"] if not row["parent"])
    assert (row["conversation"], row["events"]) == ("c1", 42)
    assert foldlog(f"why {condensed['session']} 4 --json").document["fate"] == "forgotten"
    assert foldlog("why c1 4 --json").document["fate"] == "shown"
    early = foldlog(f"continue c1 --in codex --at 2 --view-of {window}")
    assert early.status == 2
    assert "nothing can be forgotten" in early.err
