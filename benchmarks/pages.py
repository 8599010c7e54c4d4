"""The parts of pages that are made from measured figures: between a mark that names their command
and the next end.
"""

from __future__ import annotations

__all__ = ["END", "with_part"]

END = "<!-- end of figures -->"


def with_part(text: str, command: str, made: str) -> str:
    """Return a page with another part after the mark of a command. Raises ``ValueError`` where it
    lacks the mark.
    """
    begin = f"<!-- figures: {command} -->"
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page lacks '{begin}' or '{END}'")
    return f"{before}{begin}\n\n{made}\n\n{END}{after}"
