"""Stores for agent runtimes: a runtime keeps its conversations in foldlog if one of its arguments is changed.

    claude_agent.py    FoldlogSessionStore, a SessionStore of the Claude Agent SDK
    google_adk.py      FoldlogSessionService, a session service of Google's Agent Development Kit
    langgraph.py       FoldlogSaver, a BaseCheckpointSaver of LangGraph, and its hook before a model's call
    openai_agents.py   FoldlogSession, a Session of the OpenAI Agents SDK, and its input filter
    openhands.py       FoldlogFileStore, a FileStore of the OpenHands SDK, and FoldlogCondenser for its agents
    pydantic_ai.py     FoldlogConversationStore, a ConversationStore of pydantic-ai, and FoldlogSteps, a capability

Each of these files is one adapter. ``_without_sdk`` is what adapters do with a store, whatever the runtime. Extras of
foldlog install the SDKs in the range that the adapter was tested with; ``_catalog.py`` lists the adapters.
"""
