"""Import the public names of a package when they are first used. The ``__init__.pyi`` of the
package lists every name once.
"""

import importlib
import os
from collections.abc import Callable


def homes_of(folder: str) -> dict[str, str]:
    """Map each name in a package's stub to its module. The stub has one name a line, ``from MODULE
    import NAME as NAME``.
    """
    with open(os.path.join(folder, "__init__.pyi"), encoding="utf-8") as stub:
        statements = [line.split() for line in stub if line.startswith("from ")]
    return {name: module for _, module, _, name, _, _ in statements}


def lazy_getattr(package: str, homes: dict[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package. ``__getattr__`` imports a name at its first use, and
    stores the imported object in the package.
    """

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(
                f"module {package!r} has no attribute {name!r}{_hint(name, homes)}", name=name
            )
        module = importlib.import_module(package)
        if homes[name] == package:
            return importlib.import_module(f"{package}.{name}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get


def _hint(name: str, homes: dict[str, str]) -> str:
    if name.startswith("_"):  # Python itself asks for such names
        return ""
    from difflib import get_close_matches

    near = get_close_matches(name, homes, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
