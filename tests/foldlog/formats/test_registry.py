"""A format is one object: whatever reads or writes histories knows no more about it than that
object says.
"""

import ast
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from foldlog._formats import registry
from foldlog._formats.files.readers import Placed
from foldlog._formats.format import Contained, FileReader
from foldlog._formats.record import at
from foldlog.eventstore import InvalidArgument
from tests.foldlog.formats.reading import histories_at

PLACE = Path(registry.__file__).parent


def test_each_format_has_a_name_of_its_own_and_its_module_holds_it():
    assert [registry.format_named(name).name for name in registry.OURS] == [*registry.OURS]


@pytest.mark.parametrize("name", ["llama-index", "codex"])
def test_no_format_gets_the_name_of_one_of_ours(name):
    format = replace(registry.format_named(name), expected="something else")
    with pytest.raises(InvalidArgument, match="another format has the name"):
        registry.register(format)
    assert registry.register(registry.format_named(name)) is registry.format_named(name)
    assert name not in registry.REGISTERED


def test_what_all_formats_share_names_none_of_them():
    shared = [*PLACE.glob("*.py"), *(PLACE / "files").glob("*.py")]
    ours = {name.replace("-", "_") for name in registry.OURS}
    shared = [path for path in shared if path.stem not in {*ours, "registry"}]
    assert len(shared) >= 15
    named = {
        (path.name, node.value)
        for path in shared
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in registry.OURS
    }
    # What can write every history, and what a history of our own is written as.
    assert named == {("conversion.py", "openai-chat"), ("conversion.py", "openhands-v1")}


class _Notes(FileReader):
    """One history for each heading of a Markdown file: a format whose files hold no JSON."""

    def holds(self, path, begin):
        return path.suffix == ".notes" and begin.startswith(b"# ")

    def histories(self, path):
        for part in path.read_text().split("# ")[1:]:
            name, *lines = part.splitlines()
            records = [at(str(path), {"role": "user", "content": line}) for line in lines]
            yield Contained(name, Placed(0, partial(iter, records)))


def test_a_format_may_read_its_files_itself(tmp_path, monkeypatch):
    format = replace(registry.format_named("openai-chat"), name="notes", files=_Notes())
    monkeypatch.setitem(registry.REGISTERED, "notes", format)
    (tmp_path / "a.notes").write_text("# one\nhi\nho\n# two\nhe\n")
    assert [
        (history.name, history.format, len(history.records)) for history in histories_at(tmp_path)
    ] == [
        ("one", "notes", 2),
        ("two", "notes", 1),
    ]
