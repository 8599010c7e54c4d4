"""Hooks and tools for Claude Code, Codex CLI, Gemini CLI, OpenCode and Copilot CLI.

programs.py            the five programs: where they store transcripts and settings, and what they
                       delete
asked_conversation.py  finds the conversation for a call of a tool
refreshing.py          imports the new records of a conversation's file
mcp_tools.py           the five tools; their answers are texts
mcp_server.py          serves the tools over MCP
hook.py                runs when a program calls a hook
setup.py               writes the hooks and the server into a program's settings, and removes them
doctor.py              finds transcripts that are not in the store, or that a program will delete
plugins/               the files of the programs' plugins, with the hooks and the server
"""
