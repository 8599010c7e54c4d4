"""aider's Markdown: its sessions, whose lines are whose, and what its model was shown."""

import pytest

from foldlog._formats.aider import _markdown
from foldlog.eventstore import Message
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


def opened(folder, text, name=".aider.chat.history.md", store=None):
    path = folder / name
    path.write_bytes(text.encode())
    return histories_at(path, store=store)


def read(folder, text):
    """The events of a file with one session; its records are the file."""
    (history,) = opened(folder, text)
    assert history.findings == []
    assert "".join(map(_markdown, history.records)) == text
    return history.events


@pytest.mark.parametrize(
    "text, count",
    [
        (CHAT.replace("\n", "\r\n"), 5),
        (START.lstrip() + ASKED, 2),
        (CHAT + "\n\n\nunended", 6),
        (CHAT + "> a\nb\n\nc  \n\n\n> d  \n", 6),
        ("".join(f"{line.rstrip()}\n" for line in CHAT.split("\n")), 10),
        (f"{START}{ASKED}{ASKED}{SAID}\u2028\x0b\x1c\n", 4),
    ],
)
def test_whatever_stands_in_a_session_the_records_are_its_text(tmp_path, text, count):
    assert len(read(tmp_path, text)) == count


def test_text_that_is_not_utf8_is_a_finding_with_its_line(tmp_path):
    path = tmp_path / "chat.md"
    path.write_bytes((CHAT + "\n#### \udcff  \n\nyes\n\n").encode(errors="surrogateescape"))
    (history,) = histories_at(path)
    assert [event.content for event in history.events if isinstance(event, Message)][-1] == "yes"
    (finding,) = history.findings
    assert str(finding) == f"{path}:{CHAT.count(chr(10)) + 1}: not UTF-8"
