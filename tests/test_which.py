"""``scripts/test foldlog/_history/replies.py`` and ``scripts/test list`` run the tests of a module
and of a command.
"""

import json
from pathlib import Path

import pytest

from tests.golden.rows import rows
from tests.how_many import some
from tests.which import CALLS, FEW, covering, modules


@pytest.mark.parametrize("name, among, not_among", rows("settings.json", "tests of a file"))
def test_tests_of_a_module_or_command(name, among, not_among):
    tests = covering(name)
    assert [test for test in tests if test.startswith(among)]
    assert not [test for test in tests if not_among in test]


@pytest.mark.parametrize("path", some([*map(str, modules())], 3))
def test_every_module_has_tests(path):
    tests = covering(path)
    assert tests
    assert all(Path(test.partition("::")[0]).is_file() for test in tests)


def test_calling_tests_where_few_name_a_module():
    name = "eventstore/recorders/base.py"
    calling = json.loads(CALLS.read_text())[name]
    assert len(calling) == FEW
    assert {*calling} < {*covering(name)}
