"""What mkdocs does to the documentation on the way to the site.

The page of the Python interface is made. Links to files beside ``docs/`` become their names, since the site holds
``docs/`` alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")
_DOCS = Path(__file__).parents[2] / "docs"


def on_files(files: Files, *, config: Any) -> Files:
    """Add the page of the Python interface."""
    sys.path.insert(0, str(Path(__file__).parent))
    from api_reference import page

    files.append(File.generated(config, "API.md", content=page()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page without links that lead out of ``docs/``, or to a folder."""

    def replaced(link: re.Match[str]) -> str:
        target = _DOCS / PurePosixPath(page.file.src_uri).parent / link[2]
        inside = target.resolve().is_relative_to(_DOCS.resolve()) and not target.is_dir()
        return link[0] if inside else link[1]

    return _LINK.sub(replaced, markdown)
