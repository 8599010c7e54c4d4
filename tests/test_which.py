"""``scripts/test foldlog/formats/replies.py`` and ``scripts/test list`` run the tests of a module
and of a command.
"""

import contextlib
import json

import pytest

from tests import calls
from tests.golden.rows import rows
from tests.how_many import some
from tests.which import CALLS, FEW, ROOT, covering, modules


@pytest.mark.parametrize("name, among, not_among", rows("settings.json", "tests of a file"))
def test_tests_of_a_module_or_command(name, among, not_among):
    tests = covering(name)
    assert [test for test in tests if test.startswith(among)]
    assert not [test for test in tests if not_among in test]


@pytest.mark.parametrize("path", some([*map(str, modules())], 3))
def test_every_module_has_tests(path):
    tests = covering(path)
    assert tests
    assert all((ROOT / test.partition("::")[0]).is_file() for test in tests)


def test_a_file_that_calls_nothing_is_no_test_of_a_module(monkeypatch):
    names = ["only imports.py", "also imports.py", "imports and calls.py"]
    monkeypatch.setattr(calls, "naming", lambda path: names)
    every = {name: {"find"} for name in names}
    one = {"imports and calls.py": {"find"}}
    other = {"calls all.py": {"find", "lose"}, "calls some.py": {"lose"}}
    table = calls.table_of({"called.py": {**every, **other}, "imported.py": {**one, **other}})
    assert table == {"imported.py": ["calls all.py", "calls some.py"]}


def test_only_functions_are_called():
    class Item:
        nodeid = "tests/test_some.py::test_it"

    recorder = calls.Recorder()
    protocol = recorder.pytest_runtest_protocol(Item())
    next(protocol)
    exec(compile("class A:\n def f(self): ...\nA().f()", modules()[0], "exec"))
    with contextlib.suppress(StopIteration):
        next(protocol)
    [called] = recorder.calls().values()
    assert called == {"tests/test_some.py": {"2 f"}}


def test_calling_tests_where_few_name_a_module():
    name = "eventstore/recorders/base.py"
    calling = json.loads(CALLS.read_text())[name]
    assert len(calling) == FEW
    assert {*calling} < {*covering(name)}
