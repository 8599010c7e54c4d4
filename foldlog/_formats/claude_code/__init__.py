"""Claude Code: lines of several ``type``s, with text ids that make a tree (``parentUuid``).

The lines, and the events that they become:

    user                      Message; from the environment where ``isMeta`` says that no human wrote it
    user, a tool's result     Observation, one a result
    user, isCompactSummary CondensationAction: forgets the shown events, except those that the boundary before it keeps
    assistant, a text         Message
    assistant, a tool's use   Action, one a use; a text before it in the same line is its thought
    every other type, known or not, and what only thinks   Annotation

A model's response is several lines with one ``message.id``, which is the ``response_id`` of its actions. The model's
thinking is a separate line. It is kept as an Annotation and goes with the next action, because it has to be sent to a
model again.

Where a line leaves a branch and continues from an earlier line, a Retraction takes the branch back; a return to that
branch is a Retraction too. So a session can grow, and the View is the branch that ends in its newest line. Side chains
of sub-agents are kept and not shown, unless the log has no main chain.

``reading.py`` and ``writing.py`` are the two directions, ``recognition.py`` recognizes lines. ``blocks.py``,
``attachments.py``, ``compaction.py`` and ``titles.py`` are parts of lines, ``branches.py`` and ``switches.py`` the
tree.

Line by line (``live.py``), the whole history is read once for a line that does not follow one of the last lines, and
for a line with a title.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from foldlog._formats.claude_code.branches import active_branch
from foldlog._formats.claude_code.live import ClaudeCodeLiveDecoder
from foldlog._formats.claude_code.reading import ClaudeCodeDecoder
from foldlog._formats.claude_code.recognition import LOOKALIKES, accepts, conversation, matches, source_id
from foldlog._formats.claude_code.titles import Titles
from foldlog._formats.claude_code.writing import NAME, ClaudeCodeEncoder
from foldlog._formats.format import Format, Options

__all__ = ["FORMAT"]


def _decoder(records: Iterable[Any], options: Options) -> ClaudeCodeDecoder:
    if options.past is not None:
        return ClaudeCodeLiveDecoder(Titles(), options, options.past)
    branch = active_branch(records)
    if branch.hidden:
        others = ", ".join(map(repr, branch.hidden))
        options.findings.append(
            f"holds several sessions: the View shows {branch.session!r}; the lines of {others} are kept and not shown; "
            f"import each from a file of its own"
        )
    return ClaudeCodeDecoder(branch, Titles(), options)


FORMAT = Format(
    name=NAME,
    matches=matches,
    accepts=accepts,
    decoder=_decoder,
    encoder=ClaudeCodeEncoder,
    conversation=conversation,
    looks_ahead=True,
    lookalikes=LOOKALIKES,
    live=True,
    source_id=source_id,
)
