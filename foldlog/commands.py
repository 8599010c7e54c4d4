"""What a command of another package needs to be as foldlog's own: see
``docs/how-to/command.md``.
"""

from foldlog._cli.options import DEFAULT_DB, AsJson, Db
from foldlog._cli.stores import open_existing

__all__ = ["DEFAULT_DB", "AsJson", "Db", "open_existing"]
