"""The page as a screen reader gets it, and as the keyboard goes through it."""

from typing import Any, NamedTuple

from tests.browser.chromium import Page


class Named(NamedTuple):
    """An element of the accessibility tree."""

    role: str
    name: str
    value: str
    """For instance the version that a slider is at."""
    properties: dict[str, Any]
    """Further properties by name, such as ``pressed`` of a button or ``level`` of a heading."""


def tree(page: Page) -> list[Named]:
    """Return the elements of the accessibility tree in their order, without texts and without
    elements that only group others.
    """
    named = []
    nodes = {node["nodeId"]: node for node in page.send("Accessibility.getFullAXTree")["nodes"]}
    waiting = [next(node for node in nodes.values() if "parentId" not in node)]
    while waiting:
        node = waiting.pop()
        children = [nodes[child] for child in node.get("childIds", ()) if child in nodes]
        waiting += reversed(children)
        role = node["role"]["value"]
        if not node["ignored"] and role not in (
            "none",
            "generic",
            "StaticText",
            "InlineTextBox",
            "paragraph",
        ):
            properties = {
                item["name"]: item["value"].get("value") for item in node.get("properties", ())
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
