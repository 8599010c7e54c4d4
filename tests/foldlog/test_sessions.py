"""Each session prints what its golden file has; ``python -m tests.golden.sessions`` makes the files
again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.sessions import SESSIONS, replay


@pytest.mark.parametrize("path", sorted(SESSIONS.iterdir()), ids=lambda path: path.stem)
def test_commands_print_what_their_session_has(path: Path):
    session = path.read_text("utf-8")
    assert replay(session) == session, "python -m tests.golden.sessions"
