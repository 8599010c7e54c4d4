"""Drive the real programs, each in a home of its own, against a stand-in for the server of its
model.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from tests.programs.stand_in import StandIn
from tests.programs.terminal import Terminal

BIN = Path(os.environ.get("FOLDLOG_TEST_PROGRAMS", "programs"), "node_modules", ".bin")
_SECONDS = 180


class Driven:
    """A program at work. ``say`` is one turn of its user; ``compact`` has it compact its
    context.
    """

    name: ClassVar[str]
    binary: ClassVar[str]
    format: ClassVar[str]
    compacts: ClassVar[bool] = True

    def __init__(self, home: Path, model: StandIn) -> None:
        self.home = home
        self.model = model
        self.work = home / "project"
        self.work.mkdir(parents=True)
        self.turns = 0
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {
            "HOME": str(home),
            "PATH": path,
            "TERM": "dumb",
            "XDG_DATA_HOME": str(home / ".local/share"),
            "XDG_CONFIG_HOME": str(home / ".config"),
            "XDG_CACHE_HOME": str(home / ".cache"),
            "LANG": "C.UTF-8",
        }
        self.configure()

    def configure(self) -> None:
        """Write the settings that the stand-in needs."""

    def say(self, words: str) -> str:
        raise NotImplementedError

    def options_to_continue(self, *options: str) -> tuple[str, ...]:
        """Begin a turn; return the options if it is not the first one."""
        self.turns += 1
        return options if self.turns > 1 else ()

    def compact(self) -> None:
        raise NotImplementedError

    def run(self, *arguments: str, words: str | None = None) -> str:
        """Run the program; return what it printed."""
        return self.command(str(BIN / self.binary), *arguments, words=words)

    def foldlog(self, *arguments: str, words: str | None = None, status: int = 0) -> str:
        """Run ``foldlog`` as the user of the program would."""
        return self.command(
            f"{Path(sys.executable).parent}/foldlog", *arguments, words=words, status=status
        )

    def command(self, *command: str, words: str | None = None, status: int | None = None) -> str:
        process = subprocess.run(
            command,
            cwd=self.work,
            env=self.environment,
            input=words or "",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if process.returncode != (status or 0):
            raise RuntimeError(
                f"{command} ended with {process.returncode}:"
                f" {process.stdout[-3000:]}{process.stderr[-3000:]}"
            )
        return process.stdout

    def write(self, name: str, value: object) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(value if isinstance(value, str) else json.dumps(value))

    @property
    def conversation(self) -> str:
        """The id of its conversation in the store."""
        (row,) = json.loads(self.foldlog("list", "--json"))["conversations"]
        return str(row["conversation"])


class ClaudeCode(Driven):
    name = "claude-code"
    binary = "claude"
    format = "claude-code"

    def configure(self) -> None:
        self.environment |= {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "key",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def say(self, words: str) -> str:
        return self.run(
            "-p", words, "--allowedTools", "mcp__foldlog", *self.options_to_continue("--continue")
        )

    def resume(self, session: str, words: str, *options: str) -> str:
        return self.run("-p", words, "--resume", session, "--allowedTools", "Bash", *options)

    def picker(self) -> Terminal:
        """Open the list of sessions to resume, as a person does who used the program before."""
        project = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        settings = {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "projects": {str(self.work): project},
            "customApiKeyResponses": {"approved": ["key"], "rejected": []},
        }
        self.write(".claude.json", settings)
        return Terminal([str(BIN / self.binary), "--resume"], self.work, self.environment)

    def shell(self, command: str) -> tuple[str, dict[str, str]]:
        """Return a call of the program's tool that runs a command."""
        return "Bash", {"command": command, "description": "d"}

    def compact(self) -> None:
        self.say("/compact")
        assert len(self.model.summaries) == 1


class Codex(Driven):
    name = "codex"
    binary = "codex"
    format = "codex"

    def configure(self) -> None:
        self.environment |= {"CODEX_HOME": str(self.home / ".codex"), "STAND_IN_KEY": "key"}
        self.write(
            ".codex/config.toml",
            f"""model = "stand-in"
model_provider = "stand-in"
model_auto_compact_token_limit = 5000
model_context_window = 10000
[model_providers.stand-in]
name = "stand-in"
base_url = "{self.model.url}"
env_key = "STAND_IN_KEY"
wire_api = "responses"
""",
        )

    free = (
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "--dangerously-bypass-hook-trust",
    )

    def say(self, words: str) -> str:
        return self.run("exec", *self.options_to_continue("resume", "--last"), *self.free, words)

    def resume(self, session: str, words: str) -> str:
        return self.run("exec", "resume", session, *self.free, words)

    def picker(self) -> Terminal:
        """Open the list of sessions to resume, as a person does who used the program before."""
        settings = self.home / ".codex/config.toml"
        trusted = f'[projects."{self.work}"]\ntrust_level = "trusted"\n'
        settings.write_text(f"{settings.read_text()}{trusted}")
        # Without the option, it would leave a daemon behind.
        command = [str(BIN / self.binary), "resume", "--no-daemon"]
        return Terminal(command, self.work, self.environment)

    def shell(self, command: str) -> tuple[str, dict[str, str]]:
        """Return a call of the program's tool that runs a command."""
        return "exec_command", {"cmd": command}

    def compact(self) -> None:
        self.model.tokens_once = 9_000
        self.say("A long turn.")


class Copilot(Driven):
    name = "copilot"
    binary = "copilot"
    format = "copilot-cli"

    def configure(self) -> None:
        self.environment |= {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": self.model.url,
            "COPILOT_MODEL": "gpt-4.1",
            "COPILOT_PROVIDER_API_KEY": "key",
        }

    def say(self, words: str) -> str:
        return self.run(
            "-p",
            words,
            "--allow-all-tools",
            "--allow-all-paths",
            *self.options_to_continue("--continue"),
        )

    def compact(self) -> None:
        self.say("/compact")


class OpenCode(Driven):
    name = "opencode"
    binary = "opencode"
    format = "opencode"

    def configure(self) -> None:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": self.model.url, "apiKey": "key"},
            "models": {
                "m": {"name": "m", "limit": {"context": 20_000, "output": 2_000}, "tool_call": True}
            },
        }
        self.environment |= {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        self.write(
            ".config/opencode/opencode.json",
            {
                "model": "stand-in/m",
                "small_model": "stand-in/m",
                "provider": {"stand-in": provider},
                "permission": "allow",
            },
        )

    def say(self, words: str) -> str:
        return self.run("run", *self.options_to_continue("--continue"), words)

    def compact(self) -> None:
        self.model.tokens_once = 19_500
        self.model.answers = ["long"]
        self.say("A long turn.")


class Gemini(Driven):
    name = "gemini"
    binary = "gemini"
    format = "gemini-cli"
    compacts = False

    def configure(self) -> None:
        self.environment |= {
            "GOOGLE_GEMINI_BASE_URL": self.model.url,
            "GEMINI_API_KEY": "key",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        }
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "model": {"compressionThreshold": 0.05},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        self.write(".gemini/settings.json", settings)

    def say(self, words: str) -> str:
        return self.run(
            "--yolo",
            "-m",
            "gemini-2.5-pro",
            *self.options_to_continue("--resume", "latest"),
            "-p",
            words,
        )

    def compact(self) -> None:
        self.model.tokens_once = 200_000
        self.model.answers = [("sessions", {}), "long"]
        self.say("/compress")


class QwenCode(Driven):
    name = "qwen-code"
    binary = "qwen"
    format = "qwen-code"

    def configure(self) -> None:
        self.environment |= {
            "OPENAI_BASE_URL": self.model.url,
            "OPENAI_API_KEY": "key",
            "OPENAI_MODEL": "m",
        }
        settings = {
            "security": {"auth": {"selectedType": "openai"}},
            "general": {"enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False},
        }
        self.write(".qwen/settings.json", settings)

    def say(self, words: str) -> str:
        return self.run("--yolo", "-p", words)


PROGRAMS = {program.name: program for program in (ClaudeCode, Codex, Gemini, OpenCode, Copilot)}
