"""Real histories of other agents. They are not part of the project, and tests that need them are skipped
if they are missing.
"""

from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
FOLDERS = {
    "openhands-v0": "openhands_v0",
    "openhands-v1": "openhands_v1",
    "openai-chat": "openai_chat",
    "swe-agent": "swe_agent_traj",
    "claude-code": "claude_code",
    "codex": "codex_rollout",
}
"""The folder of each format that has samples."""

needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(),
    reason="the folder 'shared' with real histories does not lie beside this project",
)
