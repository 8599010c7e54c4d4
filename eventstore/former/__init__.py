"""Former names of modules and methods, for programs that were written against an earlier layout.

Each name leads to the present one and has no behaviour of its own. The folder is on the import path of ``eventstore``,
so ``import eventstore.keys`` finds ``former/keys.py``; ``Store`` asks ``attribute`` for a name that it does not have.

=========================== ============================================================
former name                 present name
=========================== ============================================================
``eventstore.importing``    ``eventstore.writing.importing``
``eventstore.integrity``    ``eventstore.stored.hash_chain``
``eventstore.keys``         ``eventstore.stored.keys``
``eventstore.results``      ``eventstore.stored.results``
``eventstore.rows``         ``eventstore.stored.rows``
``eventstore.transaction``  ``eventstore.stored.read_transaction`` and ``write_transaction``
``Store.reseal``            ``eventstore.maintenance.rekey.rekey``
``Store.rekey``             the same
``Store.erase``             ``eventstore.maintenance.erase.erase``
``Store.verify``            ``eventstore.maintenance.verify.verify``
``Store.back_up``           ``eventstore.maintenance.backup.back_up``
``Store.vacuum``            ``eventstore.maintenance.backup.vacuum``
``Store.bring``             ``eventstore.maintenance.copy_store.copy_store``
``Store.differences_from``  ``eventstore.maintenance.copy_store.compare_stores``
``Store.status``            ``eventstore.maintenance.status.follower_status``
``Store.lost_after``        ``eventstore.maintenance.status.lost_after``
``Store.snapshot``          ``eventstore.stored.read_transaction.reading``
``Store.project``           ``eventstore.stored.write_transaction.project``
``Store.tail``              ``ReadTransaction.tail``
``Store.guard.unguarded``   ``Store.database.recorder``
``Store.uuid``              ``Store.database.uuid``, and so are ``writable``, ``bytes_pending``, ``data_version``
=========================== ============================================================
"""

from __future__ import annotations

from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

__all__ = ["attribute"]

_FUNCTIONS = {
    "reseal": ("eventstore.maintenance.rekey", "rekey"),
    "rekey": ("eventstore.maintenance.rekey", "rekey"),
    "erase": ("eventstore.maintenance.erase", "erase"),
    "verify": ("eventstore.maintenance.verify", "verify"),
    "back_up": ("eventstore.maintenance.backup", "back_up"),
    "vacuum": ("eventstore.maintenance.backup", "vacuum"),
    "status": ("eventstore.maintenance.status", "follower_status"),
    "lost_after": ("eventstore.maintenance.status", "lost_after"),
    "snapshot": ("eventstore.stored.read_transaction", "reading"),
    "project": ("eventstore.stored.write_transaction", "project"),
}
"""Methods of a store that are functions now, which take the store first."""
_FROM = {
    "bring": ("eventstore.maintenance.copy_store", "copy_store"),
    "differences_from": ("eventstore.maintenance.copy_store", "compare_stores"),
}
"""Methods of a target that are functions of source and target now."""
_OF_DATABASE = ("uuid", "writable", "bytes_pending", "data_version")


def attribute(store: Any, name: str) -> object:
    """Return the attribute of a store that has a former name. Raises ``AttributeError`` for every other name."""
    if name in _FUNCTIONS:
        module, function = _FUNCTIONS[name]
        return partial(getattr(import_module(module), function), store)
    if name in _FROM:
        module, function = _FROM[name]
        copying = getattr(import_module(module), function)
        return lambda source, **options: copying(source, store, **options)
    if name in _OF_DATABASE:
        return getattr(store.database, name)
    if name == "guard":
        return SimpleNamespace(unguarded=store.database.recorder)
    if name == "tail":
        return lambda conversation, count: store.query(conversation, lambda read: read.tail(count))
    raise AttributeError(f"{type(store).__name__!r} object has no attribute {name!r}", name=name, obj=store)
