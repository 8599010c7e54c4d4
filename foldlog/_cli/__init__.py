"""The command ``foldlog``, for people and for scripts.

To add a command: write ``commands/<name>.py``, or ``commands/store/<name>.py`` for one that looks
after a store, with a function ``run`` (its signature is the command line, its docstring the help)
and put its name into ``COMMANDS`` in ``catalog.py``. The module of a command is imported only when
it is called. Import inside ``run`` any module that only some of its options need, or that is not
always installed.

The rules of every command:

    --db STORE  the store, through ``stores.open_existing`` or ``stores.open_or_create``
    --json      exactly one JSON document on stdout, by ``terminal.emit``; nothing else is printed
                there
    exit 0      done; 1 there are findings (``terminal.warn``), the rest was done; 2 bad input,
                nothing was done
    errors      raise ``Refused`` or let an ``EventStoreError`` through: one line on stderr says
                what, where, what to do
    findings    are lines on stderr too, by ``terminal.warn``, which gives status 1; notes by
                ``terminal.note``; with
                --json each is an object
    hints       a command that a message names is made by ``hints.command``: it names the store that
                was given
    text        ``terminal`` alone prints, and escapes every text, so that no history controls a
                terminal

    application.py catalog.py suggestions.py   the commands, how their errors are reported, what was
                                               meant
    commands/                                  one file a command; commands/store/: those that look
                                               after a store
    overview.py                                what ``foldlog`` alone shows
    options.py selection.py stores.py          what commands take: options, files, filters, times,
                                               --db
    terminal.py tables.py events.py pager.py   how they print
    outcome.py hints.py                        how they end; the commands that their messages name
    agent_model.py                             the agent's model: its tokens, limit and price
    printing/                                  how the results of single commands are printed
    import_paths.py importing.py log_reading.py listing.py replaying.py serving.py
                                               what import, log, list, compare and serve do
    record_files.py database_export.py         what export writes
    erasing.py redacting.py vacuuming.py verifying.py published_heads.py
                                               what commands of a whole store do
    program_store.py quick_hook.py             the store of coding agents; the hook without what
                                               other commands need
"""

import atexit
import signal
import sys

from foldlog._cli.outcome import INTERRUPTED, INTERRUPTED_WORDS


def main() -> None:
    """Run the command line and exit with its status."""
    try:
        from foldlog._cli.quick_hook import answer, is_hook

        if is_hook(sys.argv[1:]):
            answer(sys.argv[2:])
            return
        from foldlog._cli.application import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # in an import, or while output was printed
        sys.stderr.write(f"foldlog: {INTERRUPTED_WORDS}\n")
        status = INTERRUPTED
    # the work is done, and has its status
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    sys.exit(status)
