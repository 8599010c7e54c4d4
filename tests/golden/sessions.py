"""Sessions in a shell: what a person types, one command after the other, and what is shown.

``tests/golden/sessions`` has a file for each subject. A session begins in an empty folder. Lines
that begin with ``#`` say what the next command is about. A file is typed up to ``END``. ``curl``
asks the server that ``foldlog serve`` starts, and shows the status and the document.

python -m tests.golden.sessions      write what is shown now
"""

import json
import re
import shlex
import subprocess
import tempfile
from itertools import takewhile
from pathlib import Path
from unittest.mock import patch

import foldlog
from tests.golden.outputs import folder_of_user, lines_of, run
from tests.web_client import asking_store

SESSIONS = Path(__file__).parent / "sessions"


def replay(session):
    """Type the commands of a session in an empty folder, and return it with what is shown now."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = folder_of_user(Path(temporary).resolve())
        steps = [
            "\n".join([*comments, f"$ {command}", *_shown(command, folder)])
            for comments, command in _steps(session)
        ]
    return "\n\n".join(steps) + "\n"


def _steps(session):
    """Yield the commands of a session, each with the comments above it."""
    lines = iter(session.splitlines())
    comments = []
    for line in lines:
        if line.startswith("# "):
            comments.append(line)
        elif line.startswith("$ "):
            file = [*takewhile("END".__ne__, lines), "END"] if line.endswith("<<END") else []
            yield comments, "\n".join([line.removeprefix("$ "), *file])
            comments = []


def _shown(command, folder):
    """Return what a command shows: foldlog's are run in this process, others by a shell."""
    words = shlex.split(command.replace("$PWD", str(folder)))
    if words[0] == "curl":
        return lines_of(_answer(words[1:], folder), folder)
    if "foldlog" not in words:
        # Files are listed in the order of their bytes, whatever language the machine has.
        typed = f"export LC_ALL=C; {command}"
        process = subprocess.run(typed, shell=True, cwd=folder, capture_output=True, check=True)
        return lines_of(process.stdout.decode(), folder)
    program = words.index("foldlog")
    variables = dict(word.split("=", 1) for word in words[:program])
    arguments = words[program + 1 :]
    stdin = b""
    target = None
    if "<" in arguments:
        stdin = (folder / arguments[-1]).read_bytes()
        arguments = arguments[:-2]
    elif ">" in arguments:
        target = folder / arguments[-1]
        arguments = arguments[:-2]
    printed, status = run(arguments, folder, variables, stdin)
    if target is not None:
        target.write_text(printed, "utf-8")
        printed = ""
    lines = lines_of(printed, folder)
    return [*lines, f"exit status {status}"] if status else lines


def _answer(words, folder):
    """The status of an answer of the server, and its document or the address that it names. A
    thread counts conversations, so the server is asked until all are counted.
    """
    with (
        patch(
            "foldlog._app.server.documents._SEARCH_S", None
        ),  # a search has the time that it needs
        foldlog.open(folder / "foldlog.db") as histories,
        asking_store(histories.store) as client,
    ):
        if words[0] == "-d":
            answer = client.send("POST", words[-1], headers=_JSON, body=words[1].encode())
        else:
            answer = client.get(words[-1])
        while answer.status == 200 and _is_counting(answer.json()):
            answer = client.get(words[-1])
    if "location" in answer.headers:
        return f"{answer.status} {answer.headers['location']}"
    document = json.dumps(answer.json(), indent=2, ensure_ascii=False)
    return f"{answer.status}\n{_LIST.sub(_in_one_line, document)}"


_JSON = {"content-type": "application/json"}
_LIST = re.compile(r"\[\s+([^\[\]{}]+?)\s+\]")
"""A list of numbers or texts, with each in a line of its own."""


def _in_one_line(match):
    return f"[{' '.join(match[1].split())}]"


def _is_counting(document):
    if "counted" not in document:
        return False
    return document["counted"] < document.get("total", document["conversations"])


if __name__ == "__main__":
    for path in SESSIONS.iterdir():
        path.write_text(replay(path.read_text("utf-8")), "utf-8")
