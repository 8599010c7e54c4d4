"""The names that a package needs to add a command to ``foldlog``. ``docs/how-to/command.md`` has an
example.
"""

from foldlog._app.cli.options import db_option, flag
from foldlog._app.cli.stores import open_existing

json_option = flag("--json as_json", "Print one JSON document, for programs.")

__all__ = ["db_option", "json_option", "open_existing"]
