"""Find the status of a program: transcripts that are not in the store, transcripts that the program
will delete soon, and whether its hooks fire.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

from foldlog._app.coding_agents.hook import FIRED
from foldlog._app.coding_agents.programs import Program, settings_at
from foldlog._app.coding_agents.setup import read_record
from foldlog._base.json_types import JsonObject
from foldlog._imports.importing import Import
from foldlog._reports.answers.programs import ProgramDocument
from foldlog.eventstore import Store

_DAY_S = 86_400
_SOON_DAYS = 7
"""A transcript that the program deletes within these days is reported."""


def look_at(store: Store, program: Program, folder: Path) -> ProgramDocument:
    """Return the status of a program. ``folder`` is foldlog's own folder, in which its setup and
    its hooks leave notes. Cost: the function lists the folders of the program, and asks for the
    status of every transcript.
    """
    importing = Import(store, [])  # used only to check which files are in the store
    problem = None
    days: float | None = program.days
    record: JsonObject = {}
    try:
        record = read_record(folder)
        days = program.days_kept()
    except (ValueError, OSError) as error:
        problem = str(error)
    paths = [*program.transcripts()]
    soon = 0
    if days is not None:
        soon_before = time.time() - (days - _SOON_DAYS) * _DAY_S
        soon = sum(_is_older(path, soon_before) for path in paths)
    hook = folder / FIRED / program.format
    event = None
    at = None
    if hook.is_file():
        event = hook.read_text("utf-8", "replace")
        at = datetime.fromtimestamp(hook.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return ProgramDocument(
        program=program.name,
        format=program.format,
        problem=problem,
        is_set_up=any(
            record.get(str(settings_at(target.path))) is not None for target in program.targets
        ),
        hook_event=event,
        hook_fired_at=at,
        transcripts=len(paths),
        not_here=tuple(str(path) for path in paths if not importing.is_here(path)),
        days_kept=days,
        soon=soon,
    )


def _is_older(path: Path, moment: float) -> bool:
    """Return whether a file was written last before a moment. For a file that was removed after it
    was listed, return False.
    """
    try:
        return path.stat().st_mtime < moment
    except FileNotFoundError:
        return False
