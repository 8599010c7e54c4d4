"""Checksums are the same with and without the package that computes them faster."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from foldlog.eventstore import Message, open_store
from foldlog.eventstore.log.row import crc32


@given(st.binary(max_size=3_000), st.integers(0, 2**32 - 1))
def test_the_checksum_is_that_of_zlib(data: bytes, start: int):
    assert crc32(data, start) == zlib.crc32(data, start)


def test_a_store_is_read_without_the_package(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/store.db"
    with open_store(url) as store:
        store.append("c1", Message(source="user", content="hello"), expected_version=0)
    program = (
        "import sys; sys.modules['isal'] = sys.modules['isal.isal_zlib'] = None\n"
        "import zlib\n"
        "from foldlog.eventstore import open_store\n"
        "from foldlog.eventstore.log.row import crc32\n"
        "assert crc32 is zlib.crc32\n"
        "with open_store(sys.argv[1]) as store: print([event.content for event in store.events('c1')])"
    )
    said = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['hello']"
