"""The names that a package needs to add a command to ``foldlog``. ``docs/how-to/command.md`` has an
example.
"""

from foldlog._cli.options import DEFAULT_DB, AsJson, Db
from foldlog._cli.stores import open_existing

__all__ = ["DEFAULT_DB", "AsJson", "Db", "open_existing"]
