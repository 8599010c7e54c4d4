"""CRC-32 as ``zlib`` computes it, by the package ``isal`` where it is installed: in an eighth of the time for 2 KB."""

from __future__ import annotations

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
