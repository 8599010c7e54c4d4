"""``foldlog continue``: go on with a conversation in another coding agent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from foldlog._app.cli import terminal
from foldlog._app.cli.agent_model import agent_model_option, load_condenser_for, named_model
from foldlog._app.cli.exit_status import Refused
from foldlog._app.cli.options import conversation_argument, option, store_options
from foldlog._app.cli.stores import open_existing, require_id
from foldlog._history.histories import Histories
from foldlog._reports.answers.conversations import ContinuationDocument
from foldlog._reports.words.gist import count
from foldlog.condensers import NoCondensationAvailable
from foldlog.eventstore import InvalidArgument


@conversation_argument
@option("--in program", "PROGRAM", "The program: claude-code or codex.", required=True)
@option(
    "--at",
    "V",
    "The version to hand over.",
    show_default="the present",
)
@option(
    "--cwd",
    "DIR",
    "The folder in which the program is to work.",
    show_default="the folder of the conversation",
)
@option(
    "--view-of config",
    "CONDENSER",
    "A TOML file with [condenser], which condenses the View on the way. The conversation itself"
    " stays as it is.",
    show_default=False,
)
@agent_model_option
@store_options
def run(
    conversation: str,
    program: str,
    at: int | None,
    cwd: str | None,
    config: Path | None,
    agent: str | None,
    db: str,
) -> None:
    """Go on with a conversation in another coding agent: write its View as a session of the agent.

    The conversation is forked under the id of the session, and an import of the grown session, or
    the hook of 'foldlog setup', appends to the fork. Example: foldlog continue tidewatch --in codex
    """
    with open_existing(db) as store:
        conversation = require_id(store, conversation)
        model = named_model(agent)
        condenser = None if config is None else load_condenser_for(config, model)
        history = Histories(store, condenser=condenser, agent_llm=model)[conversation]
        try:
            made = history.continue_in(program, at, cwd, condense=condenser is not None)
        except (InvalidArgument, NoCondensationAvailable) as error:
            raise Refused(str(error)) from error
        except OSError as error:
            raise Refused(error.strerror or str(error)) from error
    document = ContinuationDocument(
        conversation=conversation,
        version=made.version,
        session=made.session,
        program=program,
        file=str(made.path),
        command=made.command,
        records=made.records,
        tokens=made.tokens,
        left_out=made.left_out,
        warnings=made.warnings,
    )
    shared = f"shares {count(made.version, 'event')} of {terminal.typed_id(conversation)}"
    lines = [
        f"{made.session}: {shared}, about {made.tokens:,} tokens",
        f"file: {made.path}",
        *_left_out(made.left_out),
        f"to go on: {made.command}",
    ]
    terminal.answer(document, lines)
    terminal.note(*made.warnings)


def _left_out(counts: Mapping[str, int]) -> list[str]:
    """Return a line about the kinds of events that the session lacks, if there are some."""
    kinds = ", ".join(f"{number:,} × {kind}" for kind, number in sorted(counts.items()))
    return [f"left out: {kinds}"] if kinds else []
