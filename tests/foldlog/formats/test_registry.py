"""A format is one object. Code that reads or writes histories knows only what this object says
about the format.
"""

from dataclasses import replace
from functools import partial

import pytest

import foldlog
from foldlog.eventstore import InvalidArgument, Message
from foldlog.formats import registry
from foldlog.formats.files.readers import Placed
from foldlog.formats.format import Contained, FileReader, RecordDecoder, UnusableFormat
from foldlog.formats.record import at
from tests.foldlog.formats.reading import histories_at


@pytest.mark.parametrize("name", ["llama-index", "codex"])
def test_name_of_our_format_is_taken(name):
    format = replace(registry.format_named(name), expected="something else")
    with pytest.raises(InvalidArgument, match="another format has the name"):
        registry.register(format)
    assert registry.register(registry.format_named(name)) is registry.format_named(name)
    assert name not in registry.REGISTERED


class _Notes(FileReader):
    """One history for each heading of a Markdown file: a format whose files hold no JSON."""

    def holds(self, path, begin):
        return path.suffix == ".notes" and begin.startswith(b"# ")

    def histories(self, path):
        for part in path.read_text().split("# ")[1:]:
            name, *lines = part.splitlines()
            records = [at(str(path), {"role": "user", "content": line}) for line in lines]
            yield Contained(name, Placed(partial(iter, records)))


def test_a_format_may_read_its_files_itself(tmp_path, monkeypatch):
    format = replace(registry.format_named("openai-chat"), name="notes", files=_Notes())
    monkeypatch.setitem(registry.REGISTERED, "notes", format)
    (tmp_path / "a.notes").write_text("# one\nhi\nho\n# two\nhe\n")
    assert [
        (history.name, history.format, len(history.records)) for history in histories_at(tmp_path)
    ] == [("one", "notes", 2), ("two", "notes", 1)]


@pytest.mark.parametrize(
    "events, problem",
    [([], "returned no event"), ([Message(content="hi", source="user", id=7)], "event 7")],
)
def test_decoder_that_numbers_no_event_is_named(events, problem, monkeypatch):
    class Decoder(RecordDecoder):
        def events(self, record):
            return events

    format = replace(registry.format_named("openai-chat"), name="notes", decoder=Decoder)
    monkeypatch.setitem(registry.REGISTERED, "notes", format)
    with foldlog.open("memory:") as histories, pytest.raises(UnusableFormat, match=problem):
        histories["a"].append_records([{"role": "user", "content": "hi"}], format="notes")
