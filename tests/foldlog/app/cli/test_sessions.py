"""Each session prints what its golden file has; ``python -m tests.golden.sessions`` makes the files
again.
"""

import pytest

from tests.golden.sessions import SESSIONS, replay


@pytest.mark.parametrize("path", sorted(SESSIONS.iterdir()), ids=lambda path: path.stem)
def test_commands_print_what_their_session_has(path):
    session = path.read_text("utf-8")
    assert replay(session) == session, "python -m tests.golden.sessions"
