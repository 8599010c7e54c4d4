"""Hooks of mkdocs that change the documentation when the site is built.

The home page is the beginning of the README. The hooks make the page of the Python interface, the
page of the command, and the list of decisions. The site contains only ``docs/``, so links to other
files become plain text. The search leaves out ``docs/internals/``.
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
    """Add the home page, the pages of the Python interface and of the command, and the list of
    decisions.
    """
    sys.path.insert(0, str(Path(__file__).parent))
    import api_reference
    import command_reference

    files.append(File.generated(config, "index.md", content=_home()))
    files.append(File.generated(config, "API.md", content=api_reference.page()))
    files.append(File.generated(config, "CLI.md", content=command_reference.page()))
    titles = {
        path.name: path.read_text().partition("\n")[0][2:]
        for path in sorted((_DOCS / "internals/decisions").iterdir())
    }
    listed = "".join(f"- [{title}](decisions/{name})\n" for name, title in titles.items())
    files.append(
        File.generated(config, "internals/decisions.md", content=f"# Decisions\n\n{listed}")
    )
    return files


def _home() -> str:
    """Return the README up to its comparison with other stores. The links are relative to
    ``docs/``.
    """
    first_screens = (_DOCS.parent / "README.md").read_text().partition("## Why not")[0]
    return first_screens.replace("](docs/", "](")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return the text of a page without links to folders or to files outside of ``docs/``."""
    if page.file.src_uri.startswith("internals/"):
        page.meta["search"] = {"exclude": True}

    def replaced(link: re.Match[str]) -> str:
        target = _DOCS / PurePosixPath(page.file.src_uri).parent / link[2]
        inside = target.resolve().is_relative_to(_DOCS.resolve()) and not target.is_dir()
        return link[0] if inside else link[1]

    return _LINK.sub(replaced, markdown)
