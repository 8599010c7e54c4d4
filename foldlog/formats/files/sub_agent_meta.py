"""Read the file that a program writes beside the log of a sub-agent: ``agent-ID.meta.json``."""

from __future__ import annotations

from pathlib import Path

from foldlog.formats.files.readers import record_in
from foldlog.formats.record import dict_or_empty, text_or_empty

SUFFIX = ".meta.json"


def begun_by(path: Path) -> dict[str, str]:
    """Return the attributes that say who began the sub-agent with the log ``path``. If the file
    beside the log does not name the session, a folder above ``subagents`` has its name.
    """
    about = path.with_suffix(SUFFIX)
    above = path.absolute().parents
    folder = next((below.parent.name for below in above if below.name == "subagents"), "")
    if not folder or not about.exists():
        return {}
    fields = dict_or_empty(record_in(about).value)
    session = text_or_empty(fields, "parentSessionId") or folder
    agent = text_or_empty(fields, "parentAgentId")
    call = text_or_empty(fields, "toolUseId")
    parent = f"{session}/agent-{agent}" if agent else session
    return {"parent": parent, **({"parent_call": call} if call else {})}
