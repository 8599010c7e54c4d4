"""A history goes on in the real programs, and comes back as one history."""

import json
from contextlib import closing
from pathlib import Path

import pytest

import foldlog
from foldlog import Action, CondensationAction, Message, Observation
from tests.adapters.model_server import Reply
from tests.foldlog.records import GOLDEN, read_lines
from tests.programs.driving import PROGRAMS
from tests.programs.sent import IMAGE, atoms, not_in_order
from tests.programs.stand_in import StandIn

TARGETS = ("claude-code", "codex")
DIALECTS = {"claude-code": "anthropic", "codex": "responses"}
MADE_BY_FOLDLOG = "[The conversation before this point is not shown.]"
MADE_BY_CLAUDE_CODE = "No response requested."
"""What Claude Code puts behind a message of the user that has no answer, in each of its sessions."""
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SAMPLES = {
    path.stem: case["records"]
    for path in sorted((GOLDEN / "imports").glob("*.jsonl"))
    for case in read_lines(path)
    if case["name"] == "corpus"
}


@pytest.fixture(params=TARGETS)
def target(request, tmp_path):
    with closing(StandIn()) as model:
        program = PROGRAMS[request.param](tmp_path, model)
        program.environment["FOLDLOG_DB"] = str(tmp_path / "store.db")
        yield program


def hand_over(program, conversation, *options):
    where = ("--in", program.name, "--cwd", str(program.work), "--json")
    return json.loads(program.foldlog("continue", conversation, *where, *options))


def new_history(program, name, events=(), records=(), format="claude-code"):
    with foldlog.open(program.environment["FOLDLOG_DB"]) as histories:
        if events:
            histories[name].append(events)
        else:
            histories[name].append_records(records, format=format)


def view_of(program, session):
    """Return the atoms of a View."""
    with foldlog.open(program.environment["FOLDLOG_DB"]) as histories:
        messages = histories[session].view().to_messages(DIALECTS[program.name])
    return [atom for atom in atoms(messages) if atom != MADE_BY_FOLDLOG]


def request_of(program, number=-1):
    request = program.model.requests[number]
    return atoms(request.get("messages") or request["input"])


TASK = [
    Message(
        content=(
            {"type": "text", "text": "Zähl die Türme ☃\u2028 now"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ),
        source="user",
    ),
    Action(tool="look", arguments={"at": "north"}, call_id="k1", response_id="r1", thought="first"),
    Action(tool="look.at", arguments={"at": "süd"}, call_id="k2", response_id="r1"),
    Observation(content="four towers", tool="look", call_id="k1"),
    Observation(content="fog bank", tool="look.at", call_id="k2", is_error=True),
    Message(content="Four in the north.", source="agent"),
    CondensationAction(forgotten_event_ids=(1, 3), summary="SUMMARY-NORTH", summary_offset=1),
    Action(tool="sweep", arguments={"all": True}, call_id="k3", response_id="r2"),
]


def test_history_goes_on_and_comes_back(target):
    new_history(target, "task", TASK)
    made = hand_over(target, "task")
    handed_over = view_of(target, made["session"])
    assert any("SUMMARY-NORTH" in atom for atom in handed_over)
    said = [*handed_over]
    for turn in range(2):
        target.model.tokens_once = 1_111
        target.model.answers = [f"answered {turn}"]
        target.resume(made["session"], f"asked {turn}")
        said += [f"asked {turn}"]
        assert not_in_order(said, request_of(target)) == []
        said += [f"answered {turn}"]
        target.foldlog("import", made["file"])
        target.foldlog("import", made["file"])
    listed = json.loads(target.foldlog("list", "--long", "--json"))["conversations"]
    assert {row["conversation"] for row in listed} == {"task", made["session"]}
    (fork,) = (row for row in listed if row["conversation"] == made["session"])
    assert (fork["spent"]["calls"], fork["spent"]["prompt_tokens"]) == (2, 2_222)
    said = "\n".join(view_of(target, made["session"]))
    words = ("Zähl", "SUMMARY-NORTH", "asked 0", "answered 0", "asked 1", "answered 1")
    assert [said.count(word) for word in words] == [1] * 6
    assert said.count("outcome of this call is unknown") == 1
    why = json.loads(target.foldlog("why", made["session"], "four towers", "--json"))
    assert not why["fact"]["is_known"]


def test_hook_appends_to_the_fork(target):
    new_history(target, "task", TASK)
    target.foldlog("setup", target.name, "--db", target.environment["FOLDLOG_DB"])
    made = hand_over(target, "task")
    target.model.answers = ["answered"]
    target.resume(made["session"], "asked")
    listed = json.loads(target.foldlog("list", "--json"))["conversations"]
    assert {row["conversation"] for row in listed} == {"task", made["session"]}
    assert "answered" in "\n".join(view_of(target, made["session"]))
    target.foldlog("setup", target.name, "--remove")


@pytest.mark.parametrize("format", SAMPLES)
def test_every_format_goes_over(target, format):
    new_history(target, "sample", records=SAMPLES[format], format=format)
    made = hand_over(target, "sample")
    before = view_of(target, made["session"])
    target.resume(made["session"], "asked")
    lost = not_in_order([*before, "asked"], request_of(target))
    if target.name == "codex":
        # Codex decodes each image, and the images of these samples are broken.
        lost = [atom for atom in lost if not atom.startswith(IMAGE)]
    assert lost == []


RELAYS = (("codex", "claude-code", "codex"), ("claude-code", "codex", "claude-code"))


@pytest.mark.parametrize("order", RELAYS, ids="-".join)
def test_programs_hand_over_in_a_relay(tmp_path, order):
    """Each program calls a tool, and hands over to the other program."""
    with closing(StandIn()) as model:
        agents = [
            PROGRAMS[name](tmp_path / f"{name}-{number}", model)
            for number, name in enumerate(order)
        ]
        for agent in agents:
            agent.environment["FOLDLOG_DB"] = str(tmp_path / "store.db")
        new_history(agents[0], "task", TASK)
        conversation = "task"
        said = ["Zähl", "SUMMARY-NORTH", "Four in the north.", "call sweep", "outcome of this call"]
        for number, agent in enumerate(agents):
            made = hand_over(agent, conversation)
            before = view_of(agent, made["session"])
            # The shell computes the result, so the text of the call does not contain it.
            tool, arguments = agent.shell(f"echo result-{number}-$((40+2))")
            call = Reply(f"thought {number}", [(tool, f"call_{number}", arguments)])
            model.tokens_once = 1_000
            model.answers = [call, f"answered {number}"]
            agent.resume(made["session"], f"asked {number}")
            turn = [
                f"asked {number}",
                f"thought {number}",
                f"echo result-{number}-$((40+2))",
                f"result-{number}-42",
            ]
            assert not_in_order([*before, *turn], request_of(agent)) == []
            agent.foldlog("import", made["file"])
            conversation = made["session"]
            said += [*turn, f"answered {number}"]
        shown = view_of(agents[-1], conversation)
        assert not_in_order(said, shown) == []
        texts = "\n".join(shown)
        assert [texts.count(word) for word in said] == [1] * len(said)
        assert sum(atom.startswith("call ") for atom in shown) == 1 + len(agents)
        repeated = {atom for atom in shown if shown.count(atom) > 1}
        assert repeated <= {MADE_BY_CLAUDE_CODE}
        listed = json.loads(agents[0].foldlog("list", "--long", "--json"))["conversations"]
        assert len(listed) == 4
        spent = [row["spent"] for row in listed if row["conversation"] != "task"]
        assert [(usage["calls"], usage["prompt_tokens"]) for usage in spent] == [(2, 1_100)] * 3


def test_title_names_the_session(tmp_path):
    with closing(StandIn()) as model:
        claude = PROGRAMS["claude-code"](tmp_path, model)
        claude.environment["FOLDLOG_DB"] = str(tmp_path / "store.db")
        new_history(claude, "task", TASK)
        claude.foldlog("attributes", "task", "--set", "title=Towers of the north")
        made = hand_over(claude, "task")
        claude.resume("Towers of the north", "asked")
        assert not_in_order([*view_of(claude, made["session"]), "asked"], request_of(claude)) == []


def test_person_picks_the_session(target):
    """The program lists the session, shows its turns, and goes on."""
    new_history(target, "task", TASK)
    made = hand_over(target, "task")
    target.model.answers = ["answered"]
    with closing(target.picker()) as terminal:
        terminal.wait_for("Zähl die Türme")
        terminal.wait_until(lambda: "Fourinthenorth." in terminal.text, "\r")
        terminal.press("asked here")
        terminal.wait_for("asked here")
        terminal.wait_until(lambda: target.model.requests, "\r")
        terminal.wait_for("answered")
        terminal.leave()
        assert "couldnotberestored" not in terminal.text
    assert len(target.model.requests) == 1
    assert not_in_order([*view_of(target, made["session"]), "asked here"], request_of(target)) == []
    target.foldlog("import", made["file"])
    texts = "\n".join(view_of(target, made["session"]))
    assert [texts.count(word) for word in ("Zähl", "asked here", "answered")] == [1] * 3


def test_long_history_is_compacted_first(target):
    turns = {"codex": 60, "claude-code": 203}[target.name]
    words = "lighthouse keeper notes " * 800
    events = [
        event
        for turn in range(turns)
        for event in (
            Message(content=f"turn {turn} {words}", source="user"),
            Message(content=f"reply {turn}", source="agent"),
        )
    ]
    new_history(target, "long", events)
    made = hand_over(target, "long")
    assert made["tokens"] > 4_000 * turns
    warnings_expected = 0 if target.name == "codex" else 1
    assert len(made["warnings"]) == warnings_expected
    assert all("200,000" in warning for warning in made["warnings"])
    target.resume(made["session"], "asked")
    assert len(target.model.summaries) == 1
    target.foldlog("import", made["file"])
    listed = json.loads(target.foldlog("list", "--json"))["conversations"]
    assert {row["conversation"] for row in listed} == {"long", made["session"]}
    assert "turn 3 lighthouse" not in "\n".join(view_of(target, made["session"]))


def test_condensed_view_goes_over(target):
    words = [f"{kind} of pier {number}" for number in range(30) for kind in ("wish", "reply")]
    sources = ("user", "agent") * 30
    pairs = zip(words, sources, strict=True)
    new_history(target, "piers", [Message(content=text, source=source) for text, source in pairs])
    target.write("digest.toml", '[condenser]\ntype = "digest"\n')
    made = hand_over(target, "piers", "--view-of", str(target.home / "digest.toml"))
    target.model.answers = ["answered"]
    target.resume(made["session"], "asked")
    sent = request_of(target)
    assert not_in_order([*view_of(target, made["session"]), "asked"], sent) == []
    assert "reply of pier 9" not in sent
    assert any("reply of pier 29" in atom for atom in sent)
    target.foldlog("import", made["file"])
    listed = json.loads(target.foldlog("list", "--json"))["conversations"]
    assert {row["conversation"] for row in listed} == {"piers", made["session"]}


def test_claude_code_resumes_in_a_folder_of_any_name(tmp_path):
    with closing(StandIn()) as model:
        claude = PROGRAMS["claude-code"](tmp_path, model)
        claude.environment["FOLDLOG_DB"] = str(tmp_path / "store.db")
        new_history(claude, "task", TASK)
        real = tmp_path / "Türme 🚢"
        long = tmp_path / ("n" * 120) / ("m" * 120)
        link = tmp_path / "link"
        for folder in (real, long):
            folder.mkdir(parents=True)
        link.symlink_to(real)
        for folder in (real, long, link):
            claude.work = Path(folder)
            made = hand_over(claude, "task")
            claude.resume(made["session"], "asked")
            assert (
                not_in_order([*view_of(claude, made["session"]), "asked"], request_of(claude)) == []
            )


def test_session_that_is_written_again_is_a_fork(target):
    new_history(target, "task", TASK)
    made = hand_over(target, "task")
    target.model.answers = ["answered"]
    if target.name == "codex":
        target.resume(made["session"], "asked")
        target.foldlog("import", made["file"])
        target.run("migrate-rollouts", "--apply")
        target.resume(made["session"], "asked again")
    else:
        target.resume(made["session"], "asked", "--fork-session")
    target.foldlog("import", "--from", target.format)
    rows = json.loads(target.foldlog("list", "--long", "--json"))["conversations"]
    assert len(rows) == 3
    assert [row["conversation"] for row in rows if row["parent"] is None] == ["task"]
    for row in rows:
        texts = "\n".join(view_of(target, row["conversation"]))
        assert texts.count("Four in the north") == 1
