"""A workflow of DBOS whose steps carry a version: killed at every point, it ends, and each turn has
one prompt.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import foldlog

ROOT = Path(__file__).parents[3]
AGENT = Path(__file__).parent / "agent.py"


def run(folder: Path, kill_at: int, turns: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(AGENT), str(folder), str(kill_at), str(turns)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def lines(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_killed_workflow_has_one_prompt_each_turn(tmp_path: Path) -> None:
    kills = 0
    doubts = 0
    for point in range(1, 100):
        folder = tmp_path / str(point)
        folder.mkdir()
        first = run(folder, point, 2)
        if first.returncode == 0:
            break
        assert first.returncode == -signal.SIGKILL, first.stderr
        kills += 1
        again = run(folder, 0, 2)
        assert again.returncode == 0, f"stuck after a kill at point {point}: {again.stderr}"
        prompts = defaultdict(set)
        for turn, prompt in lines(folder / "prompts.jsonl"):
            prompts[turn].add(prompt)
        assert [len(prompts[turn]) for turn in range(2)] == [1, 1], f"killed at point {point}"
        ran = [command.split()[0] for command in lines(folder / "ran.jsonl")]
        assert len(ran) == len(set(ran)), f"a command ran twice after a kill at point {point}"
        with foldlog.open(f"sqlite:///{folder}/agent.db") as histories:
            effects = histories["run-1"].effects()
        assert {effect.state for effect in effects} <= {"done", "unknown"}
        doubts += sum(effect.state == "unknown" for effect in effects)
        assert len(effects) == 2
    assert kills == 2 * 6, "a turn has six points"
    assert doubts == 2 * 2, "two of them are in the command, before and after it is written down"


def test_a_workflows_state_does_not_contain_prompts(tmp_path: Path) -> None:
    assert run(tmp_path, 0, 8).returncode == 0
    with sqlite3.connect(tmp_path / "dbos.sqlite") as dbos:
        (outputs,) = dbos.execute("select sum(length(output)) from operation_outputs").fetchone()
    assert outputs < 8 * 3 * 20, "a step has less than 20 characters"
