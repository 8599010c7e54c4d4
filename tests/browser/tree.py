"""The page as a screen reader is told it, and as the keyboard goes through it."""

from typing import Any, NamedTuple

from tests.browser.chromium import Page


class Named(NamedTuple):
    """An element of the accessibility tree: what it is, what it is called, what it is worth, and
    what is said of it.
    """

    role: str
    name: str
    value: str
    properties: dict[str, Any]


def tree(page: Page) -> list[Named]:
    """Return what the page has for those who do not see it, in its order, without texts and what
    only groups.
    """
    named = []
    nodes = {node["nodeId"]: node for node in page.send("Accessibility.getFullAXTree")["nodes"]}
    waiting = [next(node for node in nodes.values() if "parentId" not in node)]
    while waiting:
        node = waiting.pop()
        waiting += [nodes[each] for each in reversed(node.get("childIds", ())) if each in nodes]
        role = node["role"]["value"]
        if not node["ignored"] and role not in (
            "none",
            "generic",
            "StaticText",
            "InlineTextBox",
            "paragraph",
        ):
            properties = {
                each["name"]: each["value"].get("value") for each in node.get("properties", ())
            }
            named.append(Named(role, _value(node, "name"), _value(node, "value"), properties))
    return named


def _value(node: dict[str, Any], name: str) -> str:
    return str(node.get(name, {}).get("value", ""))


_FOCUSED = """(() => {
  const node = document.activeElement;
  const box = node.matches('.slider') ? node.closest('.strip') : node;
  const drawn = getComputedStyle(box);
  const ringed = drawn.outlineStyle !== 'none' && parseFloat(drawn.outlineWidth) >= 2;
  return [node.localName, node.getAttribute('aria-label') ?? node.innerText.trim(), ringed];
})()"""


def focused(page: Page) -> tuple[str, str, bool]:
    """Return where the keyboard is: the element, its name, and whether that is seen."""
    return tuple(page.ask(_FOCUSED))
