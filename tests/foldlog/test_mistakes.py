"""What the command answers to the mistakes of a first day: it names what was meant."""

from __future__ import annotations

import pytest

MISTAKES = {
    "help": "did you mean 'foldlog --help'?",
    "help view": "did you mean 'foldlog view --help'?",
    "version": "did you mean 'foldlog --version'?",
    "-V": "did you mean --version?",
    "ls": "Did you mean 'list'?",
    "rm c": "did you mean 'foldlog erase ID --reason TEXT'?",
    "undo c": "did you mean 'foldlog retract ID --to V'?",
    "init": "did you mean 'foldlog import PATH'?",
    "open my.db": "did you mean 'foldlog serve'?",
    "--db my.db list": "options follow the command: 'foldlog list --db STORE'",
    "list my.db": "an option names the store: 'foldlog list --db my.db'",
    "view c my.db": "an option names the store: 'foldlog view c --db my.db'",
    "demo my.db": "an option names the store: 'foldlog demo --db my.db'",
    "verify other.db": "an option names the store: --db other.db",
    "why c 3 --at 5": "'foldlog view ID --at V' shows one",
    "why 3": "the id of the conversation comes first: 'foldlog why ID 3'",
    "show 3 --db foldlog.db": "the id of the conversation comes first: 'foldlog show ID 3 --db foldlog.db'",
    "condense c --condenser digest": "did you mean --config FILE",
    "compare c --condenser digest": "did you mean --config FILE",
    "import x.jsonl --id c": "No such option: --id; did you mean --conversation ID?",
    "search words --conversation c": "did you mean --in ID?",
    "log c --limit 5": "did you mean --tail N?",
    "view c --version 5": "did you mean --at V?",
    "export c --to x": "did you mean --output FILE?",
    "export c out.jsonl": "and its file with --output FILE",
    "report c out.html": "did you mean 'foldlog report c --output out.html'?",
    "fork c 12 other": "did you mean 'foldlog fork c other --at 12'?",
    "fork c 12 other --db foldlog.db": "did you mean 'foldlog fork c other --at 12 --db foldlog.db'?",
    "fork c": "a fork needs an id of its own: 'foldlog fork c c-2'",
    "attributes c title=Tides": "did you mean 'foldlog attributes c --set title=Tides'?",
    "attributes c title": "did you mean 'foldlog attributes c --set title=VALUE'?",
    "retract c 5": "did you mean 'foldlog retract c --to 5'?",
}


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_answered_with_what_was_meant(foldlog, five_messages, typed):
    foldlog("import", five_messages, "--conversation", "c")
    ran = foldlog(*typed.split())
    assert (ran.status, ran.out) == (2, "")
    assert MISTAKES[typed] in ran.err
    assert ran.err.count("\n") == 1
