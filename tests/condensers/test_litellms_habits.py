"""foldlog prevents what litellm does unasked, in a process of its own: litellm does most of it when
it is imported.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.condensers.openai_server import OpenAIServer, ToolCall

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, socket, sys

asked = []

def watch(name):
    real = getattr(socket.socket, name)
    def watched(self, address):
        asked.append(address[0] if isinstance(address, tuple) else address)
        return real(self, address)
    setattr(socket.socket, name, watched)

watch("connect")
watch("connect_ex")
lookup = socket.getaddrinfo

def watched_lookup(host, *rest, **named):
    asked.append(host)
    return lookup(host, *rest, **named)

socket.getaddrinfo = watched_lookup

before = dict(os.environ)
from foldlog.condensers.errors import ModelCallFailed
from foldlog.condensers.models.client import LLM, LLMConfig
early = "litellm" in sys.modules
llm = LLM(LLMConfig(model="openai/gpt-4o-mini", base_url=sys.argv[1], api_key="k"))
early = early or "litellm" in sys.modules
tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
said = [{"role": "user", "content": "hello"}]
llm.complete(said, tools=[tool], tool_choice="f")
llm.complete(said, response_schema={"type": "object"})
claude = LLM(LLMConfig(model="anthropic/claude-sonnet-4-5", base_url=sys.argv[1], api_key="k", retries=0))
for how in ({}, {"response_schema": {"type": "object", "properties": {}}}):  # the latter needs a beta header
    try:
        claude.complete(said, **how)
    except ModelCallFailed:
        pass  # nothing is served at this path
for model in ("gpt-4o", "claude-sonnet-4-5", "gemini/gemini-2.5-pro", "groq/llama-3.3-70b-versatile", "no-such-model"):
    known = LLM(LLMConfig(model=model, tokenizer="gpt-4o" if "llama" in model else None))
    known.count_tokens(said, [tool])
    known.max_input_tokens, known.supports_function_calling, known.supports_response_schema
new = {name: value for name, value in os.environ.items() if before.get(name) != value}
print(json.dumps({"asked": asked, "early": early, "environment": new}))
"""


# shorter: test_imports.py, test_no_module_imports_litellm
@pytest.mark.long
def test_litellm_is_imported_late_and_stays_offline(tmp_path):
    (tmp_path / ".env").write_text(
        "OPENAI_API_KEY=from-the-env-file\nFOLDLOG_DB=sqlite:///elsewhere.db\n"
    )
    with OpenAIServer(ToolCall("f")) as server:
        process = subprocess.run(
            [sys.executable, "-c", PROGRAM, server.url],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    (line,) = process.stdout.splitlines()
    habits = json.loads(line)
    assert set(habits["asked"]) == {"127.0.0.1"}
    assert habits["early"] is False
    assert {name for name in habits["environment"] if not name.startswith("LITELLM_LOCAL_")} <= {
        "TIKTOKEN_CACHE_DIR"
    }
    assert "from-the-env-file" not in str(habits["environment"])
