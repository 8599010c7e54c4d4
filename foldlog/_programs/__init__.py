"""The hooks and tools that coding agents call: Claude Code, Codex CLI, Gemini CLI, OpenCode and
Copilot CLI.

    programs.py   the five programs: where they store transcripts and settings, and what they
                  delete
    asking.py     the conversation about which a tool is asked
    answers.py    the five tools; their answers are texts
    server.py     the tools for a program, over MCP
    hook.py       the work of a program's hook
    setup.py      writes the hooks and the server into a program's settings, and removes them
    doctor.py     finds transcripts that are not in the store, or that a program will delete
    plugins/      the hooks and the server as files for the plugin systems of the programs
"""
