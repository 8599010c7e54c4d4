"""Each command prints what its golden file has; ``python -m tests.golden.outputs`` makes the files
again.
"""

import pytest

from tests.golden.outputs import NAMES, OUTPUTS, file_of, make_folder, output_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("outputs")
    make_folder(path)
    return path


CASES = [pytest.param(name, marks=pytest.mark.long) if name == "demo" else name for name in NAMES]
"""The demo takes long. ``test_cli.py`` checks a part of what it prints."""


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_its_file_has(name, folder):
    assert output_of(name, folder) == file_of(name).read_text(encoding="utf-8"), (
        "python -m tests.golden.outputs"
    )


def test_each_file_is_of_a_command():
    assert {*OUTPUTS.iterdir()} == {*map(file_of, NAMES)}
