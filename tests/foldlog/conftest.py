"""The command, run in this process, in a folder of its own."""

import json
import sys
from typing import Any, NamedTuple

import pytest

from foldlog.cli import main
from tests.foldlog.records import condensed, said


class Ran(NamedTuple):
    """What a run of the command gave."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def foldlog(tmp_path, monkeypatch, capsys):
    """``foldlog("view", "c1")``, in an empty folder where the default store is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FOLDLOG_DB", raising=False)

    def run(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["foldlog", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def write(tmp_path):
    """``write("c1.jsonl", records)``: a file of JSON lines. Texts are written as they are."""

    def written(name: str, records: list[Any]) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", errors="surrogatepass")
        return name

    return written


@pytest.fixture
def five_messages(write):
    """A history of five messages, of which a condensation then forgets three."""
    records = [said(n, f"message {n}") for n in range(5)]
    return write("five.jsonl", [*records, condensed(5, [1, 2, 3], "three messages", 1)])
