"""Files without a history of a known format: a row has the file and what the refusal says.

    python -m tests.foldlog.formats.test_refused

writes the refusals again. Look at what changed.
"""

import json
import tempfile
from pathlib import Path

import pytest

from foldlog.formats import NotAHistory
from tests.foldlog.formats.reading import histories_at
from tests.foldlog.records import GOLDEN, read_lines, write_lines

FILE = GOLDEN / "refused.jsonl"
ROWS = read_lines(FILE)


def refusal(row, folder):
    """Return what the import of the ``text`` or the ``document`` of a row says; bytes that are no
    text are surrogates.
    """
    text = row["text"] if "text" in row else json.dumps(row["document"])
    path = folder / row["file"]
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(NotAHistory) as refused:
        histories_at(path, row.get("format", "auto"))
    return str(refused.value).replace(str(path), row["file"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_refusal_says_what_the_file_is(row, tmp_path):
    assert refusal(row, tmp_path) == row["why"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        whole = [{**row, "why": refusal(row, Path(folder))} for row in ROWS]
    write_lines(FILE, whole)
