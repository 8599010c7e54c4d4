"""Archives: conversations with their heads in one file. ``docs/STORED_BYTES.md`` defines the format.

An archive is compressed JSON lines: one for the archive, then one for each conversation, each of its events and each of
its idempotency keys, and a last one with the totals. ``zstdcat history.foldlog | jq`` reads it.

``lines.py`` has the lines, ``writing.py`` and ``reading.py`` their two directions, ``compression.py`` the outer layer.

It holds plain text, also of an encrypted store; the file is for its owner only.
"""

from foldlog.archives.lines import NotAnArchive
from foldlog.archives.reading import LeftOut, is_archive, read_archive
from foldlog.archives.writing import Problem, Written, write_archive

__all__ = ["LeftOut", "NotAnArchive", "Problem", "Written", "is_archive", "read_archive", "write_archive"]
