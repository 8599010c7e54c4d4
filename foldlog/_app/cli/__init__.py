"""The command ``foldlog``, for people and for scripts.

To add a command, write ``commands/<name>.py`` with a function ``run``, put its name into
``COMMANDS`` in ``catalog.py``, and run ``python -m tests.golden.words``. A command for a whole
store is ``commands/store/<name>.py``. The decorators of ``run`` are the command line, and its
docstring is the help. The module of a command is imported only when the command is called. Inside
``run``, import modules that only some options need, or that are not always installed.

The rules of every command:

    --db STORE  opens the store through ``stores.open_existing`` or ``stores.open_or_create``
    --json      prints exactly one JSON document on stdout, by ``terminal.emit``, and nothing else
    exit 0      the work is done
    exit 1      there are findings, and all other work is done
    exit 2      the input is bad, and nothing is done
    errors      a command raises ``Refused``, or does not catch an ``EventStoreError``; one line on
                stderr says what is wrong, where, and what to do
    findings    ``terminal.warn`` prints a line on stderr, and sets status 1
    notes       ``terminal.note`` prints a line on stderr; with --json, findings and notes are JSON
    hints       ``hints.command`` writes a command for a message, with the user's store
    text        only ``terminal`` prints; it escapes every text, so that no history can control a
                terminal

The files:

    application.py catalog.py suggestions.py   the commands, their errors, and hints for mistyped
                                           commands
    command_line.py completion.py              arguments and options of Click; completion in a shell
    commands/                                  one file for a command; commands/store/ has the
                                               commands for a whole store
    overview.py                                the overview of ``foldlog`` without a command
    options.py selection.py stores.py          options, files, filters, times, --db
    terminal.py tables.py pager.py             printing
    exit_status.py hints.py                    exit statuses, and the commands in messages
    agent_model.py                             the agent's model: its tokens, limit and price
    printing/                                  the output of single commands
    import_paths.py importing.py               the work of import
    log_reading.py listing.py replaying.py serving.py keeping_up.py
                                               the work of log, list, compare, serve and keep-up
    record_files.py database_export.py run_export.py  the files of export
    erasing.py redacting.py vacuuming.py verify_findings.py
    checkpoints.py
                                               the work of commands for a whole store
    quick_hook.py quick_completion.py          a hook and completion, with few imports
"""

import atexit
import gc
import os
import signal
import sys

from foldlog import __version__
from foldlog._app.cli.exit_status import DONE, INTERRUPTED, INTERRUPTED_WORDS


def main() -> None:
    """Run the command line of this process, and exit with its status.

    Modules and events are many objects without cycles. With Python's thresholds, the search for
    cycles takes half of the time, so it runs rarely.
    """
    gc.set_threshold(100_000, 20, 100)
    try:
        if sys.argv[1:] == ["--version"]:  # without the imports of every other command
            sys.stdout.write(f"foldlog {__version__}\n")
            sys.exit(DONE)
        from foldlog._app.cli.quick_completion import COMPLETE, complete_quickly

        shell = os.environ.get(COMPLETE)
        if shell and complete_quickly(shell):
            sys.exit(DONE)
        from foldlog._app.cli.quick_hook import answer, is_hook

        if is_hook(sys.argv[1:]):
            answer(sys.argv[2:])
            return
        from foldlog._app.cli.application import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write(f"foldlog: {INTERRUPTED_WORDS}\n")
        status = INTERRUPTED
    # At its end, Python searches all objects for cycles, which takes a twelfth of a short command
    # (benchmark "list of a small store").
    atexit.register(gc.freeze)
    # The status is decided, so a later Ctrl-C is ignored.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)
