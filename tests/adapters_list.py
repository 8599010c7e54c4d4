"""The adapters and the tested releases of their SDKs."""

from typing import NamedTuple


class Adapter(NamedTuple):
    """One adapter. ``distribution`` is its SDK on the package index. ``tested`` has the tested releases
    of the SDK; the adapter needs the first of them or a later one.
    """

    name: str
    runtime: str
    classes: tuple[str, ...]
    distribution: str
    tested: tuple[str, ...]

    @property
    def module(self) -> str:
        """The name of the module."""
        return f"foldlog.adapters.{self.name}"

    @property
    def extra(self) -> str:
        """The extra of foldlog that brings the SDK."""
        return self.name.replace("_", "-")


ADAPTERS = (
    Adapter(
        "agent_framework",
        "Microsoft Agent Framework",
        ("FoldlogHistoryProvider",),
        "agent-framework-core",
        ("1.23.0",),
    ),
    Adapter(
        "claude_agent",
        "Claude Agent SDK",
        ("FoldlogSessionStore",),
        "claude-agent-sdk",
        ("0.2.100", "0.2.189"),
    ),
    Adapter(
        "google_adk", "Google ADK", ("FoldlogSessionService",), "google-adk", ("2.12.0", "2.13.0")
    ),
    Adapter(
        "langchain",
        "LangChain",
        ("FoldlogChatMessageHistory",),
        "langchain-core",
        ("1.2.7", "1.8.3"),
    ),
    Adapter(
        "langgraph", "LangGraph", ("FoldlogSaver",), "langgraph-checkpoint", ("4.0.0", "4.3.2")
    ),
    Adapter("llama_index", "LlamaIndex", ("FoldlogChatStore",), "llama-index-core", ("0.14.25",)),
    Adapter(
        "openai_agents",
        "OpenAI Agents SDK",
        ("FoldlogSession",),
        "openai-agents",
        ("0.18.0", "0.24.0"),
    ),
    Adapter(
        "openhands",
        "OpenHands SDK",
        ("FoldlogFileStore", "FoldlogCondenser"),
        "openhands-sdk",
        ("1.37.0", "1.58.2"),
    ),
    Adapter(
        "pydantic_ai",
        "pydantic-ai",
        ("FoldlogConversationStore", "FoldlogSteps"),
        "pydantic-ai-slim",
        ("2.66.0", "2.68.0"),
    ),
    Adapter(
        "strands", "Strands Agents", ("FoldlogSessionRepository",), "strands-agents", ("1.62.0",)
    ),
)
"""All adapters, in the order of their names. An extra of ``pyproject.toml`` begins with the first
tested release.
"""
