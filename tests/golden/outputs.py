"""What each command prints for a small history, or its help. ``tests/golden/outputs`` has a file
for each command.

python -m tests.golden.outputs      make them again
"""

import io
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from msgspec.structs import replace

import foldlog
from foldlog import Action, CondensationAction, Message, Observation
from foldlog._app.cli.hints import use_store
from tests.commands import NAMES, run_foldlog

OUTPUTS = Path(__file__).parent / "outputs"
_NOON = datetime(2026, 2, 17, 12, tzinfo=UTC)
_CHAT = [{"role": "user", "content": "Is it raining?"}, {"role": "assistant", "content": "No."}]
_OF_THE_RUN = re.compile(
    # a hash, what a store is called, and an object of an archive
    r"\b[0-9a-f]{64}\b|(?:(?<=\"store\": \")|(?<=of store )|(?<=, not of ))[0-9a-f-]{36}"
    r"|\b[0-9a-f]{16}-\d{8}T\d{6}-[0-9a-f]{16}-[0-9a-f]{16}\b"
    # a time of now: what sessions record is of January to March 2026
    r"|(?<!\d)(?!2026-0[1-3]-)20\d\d-\d\d-\d\d"
    r"(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+(?:Z|\+\d\d:\d\d))?)?)?"
    r"|20\d{6}T\d{6}\.\d+Z"
    # how long, how large, how fast
    r"|(?<=\"bytes\": )\d+|\d[\d,.]*(?= (?:ms|bytes|×|MB)(?!\w))|[\d,]+(?= +[\d,.]+ ×| now$)"
)
_OF_THE_MACHINE = re.compile(r"(?<=[Tt]o count them: ).*|(?<=\")/[^\"]*/foldlog(?=[ \"])")
"""What depends on how foldlog was installed."""
_LINES = {
    "demo": "demo --db demo.db",
    "import": "import chat.jsonl",
    "list": "list --long",
    "view": "view work",
    "why": "why work 1",
    "search": "search tests",
    "serve": "serve --host 0.0.0.0 --no-token",
    "log": "log work",
    "show": "show work 1",
    "diff": "diff work 4 8",
    "stats": "stats work",
    "compare": "compare work",
    "report": "report work",
    "replay": "replay work",
    "fork": "fork work other --at 4",
    "continue": "continue --help",
    "export": "export work --format openai-chat",
    "attributes": "attributes work --set project=tides",
    "append": 'append work "Thanks."',
    "retract": "retract work --to 4",
    "condense": "condense work --config window.toml --dry-run",
    "setup": "setup codex --print",
    "doctor": "doctor",
    "mcp": "mcp --help",
    "hook": "hook --help",
    "secrets": "secrets --help",
    "store info": "store info",
    "store backup": "store backup backup.db",
    "store restore": "store restore earlier.db --yes",
    "store copy": "store copy foldlog.db copy.db",
    "store index": "store index",
    "store keep-up": "store keep-up --once",
    "store vacuum": "store vacuum",
    "store verify": "store verify --views",
    "store checkpoint": "store checkpoint --help",
    "store rekey": "store rekey",
    "store erase": 'store erase work --reason "asked to" --yes',
    "store redact": 'store redact work 1 --reason "asked to" --by ann --yes',
    "store archive": "store archive --older-than 90d --to s3://bucket/prefix",
    "store expire": "store expire --older-than 90d --dry-run",
}


def make_folder(folder):
    """Make a store with a small history, a backup of the store, and a chat to import."""
    events = [
        Message(source="user", content="Why do the tests fail?"),
        Action(tool="bash", arguments={"command": "pytest"}, call_id="a"),
        Observation(cause=1, content="1 failed", call_id="a", tool="bash", is_error=True),
        Message(source="agent", content="The clock is read twice."),
        Message(source="user", content="Please fix it."),
        CondensationAction(forgotten_event_ids=[1, 2], summary="A test failed.", summary_offset=1),
        Action(tool="bash", arguments={"command": "git diff"}, call_id="b"),
        Observation(cause=6, content="+1 -2", call_id="b", tool="bash"),
    ]
    with foldlog.open(folder / "foldlog.db") as histories:
        for minute, event in enumerate(events):
            timestamp = _NOON + timedelta(minutes=minute)
            histories["work"].append(replace(event, timestamp=timestamp))
        histories.maintenance.back_up(str(folder / "earlier.db"))
    (folder / "window.toml").write_text('[condenser]\ntype = "conversation_window"\n')
    (folder / "chat.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in _CHAT))


_DATA_FOLDER = os.path.join(os.pardir, "foldlog", "")


def output_of(name, folder):
    """Return what a command prints in a copy of the folder, in lines of 100 columns, and its exit
    status.
    """
    line = _LINES[name]
    with tempfile.TemporaryDirectory() as temporary:
        work = folder_of_user(Path(temporary))
        shutil.copytree(folder, work, dirs_exist_ok=True)
        printed, status = run(shlex.split(line), work, {})
    lines = lines_of(printed, work, folder, Path(temporary))
    return "\n".join([f"$ foldlog {line}", *lines, f"exit status {status}", ""])


def folder_of_user(temporary):
    """Return a new folder in which ``run`` runs commands. The user's data folder is a link to it, so
    the user's store is ``foldlog.db`` in this folder.
    """
    work = temporary / "work"
    work.mkdir()
    (temporary / "foldlog").symlink_to(work)
    return work


def lines_of(printed, *folders):
    """Return the lines that a command printed, without what differs in each run and machine."""
    printed = printed.replace(_DATA_FOLDER, "")
    for folder in folders:
        printed = printed.replace(f"{folder}{os.sep}", "")
    text = _OF_THE_MACHINE.sub("…", _OF_THE_RUN.sub("…", printed))
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def run(arguments, folder, variables, stdin=b""):
    """Return what a command prints in a folder, and its exit status."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    home = {
        "HOME": str(folder),
        "XDG_DATA_HOME": os.pardir,
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "PATH": os.environ["PATH"],
        **variables,
    }
    with ExitStack() as stack:
        stack.enter_context(chdir(folder))
        stack.enter_context(patch.dict(os.environ, home, clear=True))
        stack.enter_context(patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin))))
        stack.enter_context(_as_installed_alone())
        stack.enter_context(redirect_stdout(out))
        stack.enter_context(redirect_stderr(out))
        status = run_foldlog(*arguments)
    use_store(None)
    out.seek(0)
    return out.read(), status


@contextmanager
def _as_installed_alone():
    """Estimate tokens, as where litellm is not installed, and find foldlog where commands are."""
    with ExitStack() as stack:
        for module in ("compare", "condense"):
            stack.enter_context(
                patch(f"foldlog._app.cli.commands.{module}.counter_beside", lambda model: None)
            )
        stack.enter_context(patch("shutil.which", lambda name, **_: f"/usr/bin/{name}"))
        yield


def file_of(name):
    """Return the file with what a command prints."""
    return OUTPUTS / f"{name.replace(' ', '-')}.txt"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as base:
        make_folder(Path(base))
        for command in NAMES:
            file_of(command).write_text(output_of(command, Path(base)), encoding="utf-8")
