"""Put measured figures into pages. The figures of a command are between a mark that names the
command and the mark ``END``.
"""

from __future__ import annotations

__all__ = ["END", "with_part"]

END = "<!-- end of figures -->"


def with_part(text: str, command: str, made: str) -> str:
    """Return the page with new figures after the mark of the command. Raises ``ValueError`` if the
    page lacks a mark.
    """
    begin = f"<!-- figures: {command} -->"
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page lacks '{begin}' or '{END}'")
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"
