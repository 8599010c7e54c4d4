"""aider's Markdown: its sessions, whose lines are whose, and what its model was shown."""

import pytest

from foldlog.eventstore import Message
from foldlog.formats.aider import _markdown
from tests.foldlog.formats.reading import histories_at

START = "\n# aider chat started at 2026-03-01 10:00:00\n\n"
HELLO = "> Aider v0.86.0  \n> Main model: sonnet with diff edit format  \n"
ASKED = "\n#### mend the kite  \n####   \n#### and the gull  \n"
SAID = "\nI mend both:\n\n> a kite\n\n#### Gull\n\nDone.\n\n"
TOKENS = (
    "> Tokens: 2.1k sent, 1.0k cache hit, 120 received. Cost: $0.01 message, $0.05 session.  \n>"
    " Commit 1a mend  \n"
)
CHAT = START + HELLO + ASKED + SAID + TOKENS


@pytest.mark.parametrize(
    "text, kinds",
    [
        (CHAT.replace("\n", "\r\n"), "stuat"),
        (START.lstrip() + ASKED, "su"),
        (CHAT + "\n\n\nnot\nended", "stuata"),
        (CHAT + "> a\nb\n\nc  \n\n\n> d  \n", "stuatt"),
        ("".join(f"{line.rstrip()}\n" for line in CHAT.split("\n")), "stuauatuat"),
        (f"{START}{ASKED}{ASKED}{SAID}\u2028\x0b\x1c\n", "suua"),
    ],
)
def test_records_are_the_text_of_a_session(tmp_path, text, kinds):
    """``kinds`` has a letter for each record: start, tool output, user, agent."""
    path = tmp_path / ".aider.chat.history.md"
    path.write_bytes(text.encode())
    (history,) = histories_at(path)
    assert history.findings == []
    assert "".join(map(_markdown, history.records)) == text
    assert "".join(record["aider"][0] for record in history.records) == kinds


def test_text_that_is_not_utf8_is_found(tmp_path):
    path = tmp_path / "chat.md"
    path.write_bytes((CHAT + "\n#### \udcff  \n\nyes\n\n").encode(errors="surrogateescape"))
    (history,) = histories_at(path)
    assert [event.content for event in history.events if isinstance(event, Message)][-1] == "yes"
    (finding,) = history.findings
    assert str(finding) == f"{path}:{CHAT.count(chr(10)) + 1}: not UTF-8"


def test_folder_with_the_name_of_a_history_is_searched(tmp_path):
    folder = tmp_path / ".aider.chat.history.md"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"role": "user", "content": "hi"}\n' * 2)
    (history,) = histories_at(tmp_path)
    assert history.format == "openai-chat"


def test_session_may_begin_with_damaged_text(tmp_path):
    path = tmp_path / "chat.md"
    path.write_bytes(b"# aider chat started at 2026-03-01 10:00:00\n\n#### \xff  \n")
    (history,) = histories_at(path)
    assert history.findings == [f"{path}:3: not UTF-8"]
