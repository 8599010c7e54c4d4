"""Ask axe-core what in a page keeps people from using it."""

import os
from functools import cache
from pathlib import Path
from typing import Any

from tests.browser.chromium import Page

_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
_RUN = """(async () => {
  const found = await axe.run(document, {runOnly: {type: 'tag', values: %s}, resultTypes: ['violations']});
  const lines = ({id, nodes}) => nodes.map(({target, failureSummary}) => [id, target.join(' '), failureSummary]);
  return found.violations.flatMap(lines);
})()"""


class AxeUnavailable(Exception):
    """axe-core is not here."""


@cache
def _source() -> str:
    """Return the script that ``$FOLDLOG_AXE`` names, which scripts/test-browser fetches."""
    path = os.environ.get("FOLDLOG_AXE")
    if not path or not Path(path).is_file():
        raise AxeUnavailable("axe-core is not here: scripts/test-browser fetches it with npm")
    return Path(path).read_text("utf-8")


def violations(page: Page) -> list[Any]:
    """Return what breaks a rule of WCAG 2.2 A or AA, or a best practice: the rule, the element and
    what to mend.
    """
    if not page.ask("typeof axe === 'object'"):
        page.ask(f"{_source()}; 0")
    return page.ask(_RUN % _TAGS)
