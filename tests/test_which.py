"""``scripts/test foldlog/_history/replies.py`` and ``scripts/test list`` run the tests of a module
and of a command.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.how_many import some
from tests.which import covering, modules


@pytest.mark.parametrize(
    "asked, among, not_among",
    [
        (
            "list",
            "tests/foldlog/test_sessions.py::test_commands_print_what_their_session_has[look]",
            "test_export_gives",
        ),
        (
            "foldlog/_cli/commands/why.py",
            "tests/foldlog/test_looking.py::test_thinking_is_shown",
            "test_export_gives",
        ),
        ("eventstore/codec.py", "tests/eventstore/test_codec.py", "test_cli"),
        ("tests/test_which.py", "tests/test_which.py", "test_cli"),
        # it imports a name from the face
        ("projections/views.py", "tests/conformance/test_rekey.py", "test_cli"),
        # of who imports it
        ("foldlog/_formats/codex/reading.py", "tests/foldlog/formats/test_codex.py", "test_rekey"),
    ],
)
def test_the_tests_of_a_module_or_a_command(asked: str, among: str, not_among: str):
    tests = covering(asked)
    assert [test for test in tests if test.startswith(among)]
    assert not [test for test in tests if not_among in test]


@pytest.mark.parametrize("path", some([*map(str, modules())], 3))
def test_every_module_of_the_product_has_tests(path: str):
    tests = covering(path)
    assert tests
    assert all(Path(test.partition("::")[0]).is_file() for test in tests)


@pytest.mark.parametrize(
    "path",
    [
        "foldlog/_cli/stores.py",
        "foldlog/_matching.py",
        "foldlog/_derived.py",
        "foldlog/__main__.py",
    ],
)
def test_a_private_module_has_tests(path: str):
    assert covering(path)


@pytest.mark.parametrize("asked", ["nonsense", "README.md", "foldlog"])
def test_what_is_neither_has_none(asked: str):
    assert covering(asked) == []
