"""The names that a package needs to add a command to ``foldlog``. ``docs/how-to/command.md`` has an
example.
"""

from foldlog._cli.options import db_option, json_option
from foldlog._cli.stores import open_existing

__all__ = ["db_option", "json_option", "open_existing"]
