"""The hooks and tools that coding agents call: Claude Code, Codex CLI, Gemini CLI, OpenCode and
Copilot CLI.

programs.py   the five programs: where they store transcripts and settings, and what they delete
asking.py     which conversation a tool is asked about; answers.py: the five tools, as texts
server.py     the tools for a program, over MCP
hook.py       what a hook of a program does
setup.py      write the hooks and the server into the settings of a program, and remove them
doctor.py     which transcripts are not in the store, or will be deleted
plugins/      the same for the plugin systems of the programs, as files
"""
