"""Former names of modules and methods, for programs that were written against an earlier layout.

Each name leads to the present one and has no behaviour of its own. The folder is on the import path of ``eventstore``,
so ``import eventstore.keys`` finds ``former/keys.py``; ``Store`` asks ``attribute`` for a name that it does not have.

=========================== ===============================
former name                 present name
=========================== ===============================
``eventstore.integrity``    ``eventstore.stored.hash_chain``
``eventstore.keys``         ``eventstore.stored.keys``
``eventstore.rows``         ``eventstore.stored.rows``
``Store.reseal``            ``Store.rekey``
=========================== ===============================
"""

from __future__ import annotations

__all__ = ["attribute"]

_METHODS = {"reseal": "rekey"}


def attribute(store: object, name: str) -> object:
    """Return the attribute of a store that has a former name. Raises ``AttributeError`` for every other name."""
    if name not in _METHODS:
        raise AttributeError(f"{type(store).__name__!r} object has no attribute {name!r}", name=name, obj=store)
    return getattr(store, _METHODS[name])
