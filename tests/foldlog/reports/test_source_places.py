"""Conversations are found by the folder in which their source was written."""

import pytest

from foldlog._reports.figures.source_places import in_folder


@pytest.mark.parametrize("odd", ["/mill\0", "/mill\ud800"])
def test_a_folder_that_no_system_has_hides_no_other(tmp_path, odd):
    folder = str(tmp_path.resolve())
    places = {"odd": {"cwd": odd}, "mill": {"cwd": folder}, "none": {}}
    assert in_folder(places, folder) == ["mill"]
