"""The command, run in this process in an empty folder."""

import itertools
import json
import re
import shlex
from typing import Any, NamedTuple

import pytest

import foldlog as api
from foldlog.eventstore.recorders.sqlite.reader import SQLiteReader
from tests.commands import run_foldlog
from tests.foldlog.records import condensed, said


class Ran(NamedTuple):
    """The outcome of a run of the command."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)

    def rows(self, name: str = "conversation", of: str = "conversations") -> list[Any]:
        """Return one field of each row in a list of the document."""
        return [row[name] for row in self.document[of]]


def assert_found_gives_1(ran: Ran) -> None:
    """A command that has printed a finding ends with 1; interrupted, with 130; or with 2, and an
    error says why.
    """
    levels = [_LEVEL.match(line) for line in ran.err.splitlines()]
    level_names = [(level[1] or level[2] or "error") for level in levels if level is not None]
    if "found" in level_names:
        assert ran.status in (1, 130) or (ran.status == 2 and level_names[-1] == "error"), ran


_LEVEL = re.compile(r'foldlog: (?:(found|note): )?|\{"level":"(\w+)"')


@pytest.fixture
def foldlog(tmp_path, monkeypatch, capsys):
    """``foldlog("view c1 --json")``, in an empty folder, on the store ``foldlog.db`` in it. The line
    is split as a shell splits it; further arguments are passed as they are. The user's store is in
    a folder of this test.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FOLDLOG_DB", "foldlog.db")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / ".data"))

    def run(line: str = "", *arguments: object) -> Ran:
        words = [*shlex.split(line), *map(str, arguments)]
        capsys.readouterr()
        status = run_foldlog(*words)
        ran = Ran(status, *capsys.readouterr())
        assert_found_gives_1(ran)
        return ran

    return run


@pytest.fixture
def stored(foldlog):
    """The histories of the store ``foldlog.db`` that ``foldlog`` reads."""
    with api.open("foldlog.db") as opened:
        yield opened


@pytest.fixture
def histories():
    """Histories in memory."""
    with api.open("memory:") as opened:
        yield opened


@pytest.fixture
def completed(foldlog, monkeypatch):
    """``completed("foldlog vi")`` returns what a shell offers for the last word of a line."""

    def complete(line: str, shell: str = "bash") -> str:
        *before, word = line.split()
        monkeypatch.setenv("_FOLDLOG_COMPLETE", f"{shell}_complete")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", word if shell == "fish" else str(len(before)))
        return str(foldlog().out)

    return complete


@pytest.fixture
def url_on(request, tmp_path):
    """``url_on("postgresql")``: the URL of an empty store in memory, in a file or on a server. With
    ``another``, it may be a former one, all stores of which are closed.
    """
    numbers = itertools.count()

    def url(database: str, *, another: bool = False) -> str:
        if database == "postgresql":
            return str(request.getfixturevalue("postgres_url")(another))
        path = f"sqlite:///{tmp_path}/store-{next(numbers)}.db?patience_s=10"
        return "memory:" if database == "memory" else path

    return url


@pytest.fixture
def rows_read(monkeypatch):
    """The number of rows that each question to a SQLite file was answered with."""
    counts: list[int] = []
    ask = SQLiteReader.ask

    def counted_ask(*arguments: Any) -> Any:
        rows = ask(*arguments)
        counts.append(len(rows))
        return rows

    monkeypatch.setattr(SQLiteReader, "ask", counted_ask)
    return counts


@pytest.fixture
def history(histories):
    return histories["c1"]


@pytest.fixture
def write(tmp_path):
    """``write("c1.jsonl", records)``: a file of JSON lines. Texts are written as they are."""

    def written(name: str, records: list[Any]) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogatepass"
        )
        return name

    return written


@pytest.fixture
def five_messages(write):
    """A history of five messages. A condensation then forgets three of them."""
    records = [said(n, f"message {n}") for n in range(5)]
    return write("five.jsonl", [*records, condensed(5, [1, 2, 3], "three messages", 1)])
