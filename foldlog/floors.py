"""Notice when a package of foldlog was replaced by another distribution's, or by another version's.

The wheel installs four packages. Other distributions have packages of the same names: installed after foldlog, they
silently overwrite its files.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

FLOORS = ("eventstore", "projections", "condensers")
_MARK = b'\n__foldlog__ = "'


def check_floors(version: str) -> None:
    """Raise ``ImportError`` unless the packages that Python finds are those of this version of foldlog.

    They are not imported. Cost: finding and reading three small files.
    """
    for name in FLOORS:
        spec = find_spec(name)
        found = _version(spec)
        if found != version:
            raise ImportError(_problem(name, spec, version, found), name=name)


def _version(spec: Any) -> str | None:
    """Return the version of foldlog in a package; None if it has none."""
    try:
        source: bytes = spec.loader.get_data(spec.origin)
    except (AttributeError, OSError):
        return None
    _, marked, rest = source.partition(_MARK)
    return rest.partition(b'"')[0].decode("utf-8", "replace") if marked else None


def _problem(name: str, spec: Any, version: str, found: str | None) -> str:
    again = f"pip install --force-reinstall foldlog=={version}"
    if spec is None:
        return f"foldlog {version} lacks its own package {name!r}; run: {again}"
    where = spec.origin or next(iter(spec.submodule_search_locations or ()), "an unknown place")
    if found is not None:
        return f"foldlog {version} found the package {name!r} of foldlog {found} at {where}; run: {again}"
    from importlib.metadata import packages_distributions

    others = [other for other in packages_distributions().get(name, ()) if other != "foldlog"]
    remove = f"run: pip uninstall {' '.join(others)}; then: " if others else "remove it; then run: "
    of = f" of the distribution {others[0]!r}" if others else ""
    return f"foldlog {version} needs its own package {name!r}, and found another one{of} at {where}; {remove}{again}"
