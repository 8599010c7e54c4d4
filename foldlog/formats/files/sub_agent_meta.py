"""Read the file that a program writes beside the log of a sub-agent: ``agent-ID.meta.json``."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from foldlog.formats.files.readers import record_in
from foldlog.formats.record import dict_or_empty, text_or_empty

SUFFIX = ".meta.json"


def begun_by(path: Path) -> dict[str, str]:
    """Return the attributes that say who began the sub-agent with the log ``path``. If the file
    beside the log does not name the session, a folder above ``subagents`` has its name.
    """
    folders = path.absolute().parent.parts[1:]
    sessions = [above for above, below in pairwise(folders) if below == "subagents"]
    about = path.with_suffix(SUFFIX)
    if not sessions or not about.exists():
        return {}
    fields = dict_or_empty(record_in(about).value)
    session = text_or_empty(fields, "parentSessionId") or sessions[-1]
    agent = text_or_empty(fields, "parentAgentId")
    call = text_or_empty(fields, "toolUseId")
    parent = f"{session}/agent-{agent}" if agent else session
    return {"parent": parent, **({"parent_call": call} if call else {})}
