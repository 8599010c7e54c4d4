"""Put measured figures into pages. On a page, the figures of a command are between a comment with
the command and the comment ``END``.
"""

from __future__ import annotations

__all__ = ["END", "with_part"]

END = "<!-- end of figures -->"


def with_part(text: str, command: str, figures: str) -> str:
    """Return the page ``text`` with ``figures`` as the figures of ``command``. Raises ``ValueError``
    if the page lacks one of the comments.
    """
    begin = f"<!-- figures: {command} -->"
    before, separator, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not separator or not end:
        raise ValueError(f"the page lacks '{begin}' or '{END}'")
    return f"{before}{begin}\n\n{figures}\n\n{END}{after}"
