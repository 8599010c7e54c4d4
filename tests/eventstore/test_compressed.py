"""Reading files that are compressed with zstd."""

import gc
import os

import pytest

from foldlog.eventstore.files import compressed
from foldlog.eventstore.files.compressed import open_unpacked, unpack

zstandard = pytest.importorskip("zstandard")
LINES = b"".join(b"line %d\n" % number for number in range(100_000))


@pytest.fixture
def packed(tmp_path):
    path = tmp_path / "lines.zst"
    path.write_bytes(zstandard.compress(LINES))
    return path


def open_files():
    paths = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [os.readlink(path) for path in paths if os.path.islink(path)]


def test_the_unpacked_content_is_that_of_the_file(packed):
    with open_unpacked(packed, 2**16) as file:
        assert file.read() == LINES


def test_a_file_may_unpack_to_its_limit(packed, monkeypatch):
    monkeypatch.setattr(compressed, "RATIO_MAX", 0)
    monkeypatch.setattr(compressed, "UNPACKED_LEAST", len(LINES))
    assert b"".join(unpack(packed)) == LINES
    monkeypatch.setattr(compressed, "UNPACKED_LEAST", len(LINES) - 1)
    with pytest.raises(OSError, match=f"unpack to more than {len(LINES) - 1:,}"):
        list(unpack(packed))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="lists open files")
def test_closing_before_the_end_closes_the_file(packed):
    gc.disable()  # the collector would close the file too, later
    try:
        file = open_unpacked(packed, 2**16)
        assert file.readline() == b"line 0\n"
        assert str(packed) in open_files()
        file.close()
        assert str(packed) not in open_files()
    finally:
        gc.enable()


def test_a_missing_file_is_an_error_of_the_first_read(tmp_path):
    with open_unpacked(tmp_path / "missing.zst", 2**16) as file, pytest.raises(FileNotFoundError):
        file.read(1)
