"""The command ``foldlog``, for people and for scripts. One file a command.

To add a command: write ``<name>.py``, in the folder of its heading, with a function ``run`` (its signature is the
command line, its docstring the help, its result the exit status) and put ``<name>`` into ``COMMANDS`` in
``application.py``. At the top
of the file only typer and what lies in this package is imported; whatever is heavy is imported inside ``run``, so that
``--help`` and shell completion answer at once.

What every command keeps to:

    --db STORE  the store, through ``stores.open_existing`` or ``stores.open_or_create``
    --json      exactly one JSON document on stdout, by ``terminal.emit``; nothing else is printed there
    exit 0      ``DONE``; 1 ``FINDINGS``: there are findings, the rest was done; 2 bad input or usage, nothing was done
    errors      raise ``Refused`` or let an ``EventStoreError`` through: one line on stderr says what, where, what to do
    text        what comes out of a history goes through ``terminal.printable``, so that no history steers a terminal
"""

from foldlog.cli.application import main

__all__ = ["main"]
