"""Histories of other agents; ``foldlog.formats`` is the face.

registry.py    which formats there are; each is a file or a folder beside it, with one ``Format`` object
format.py      what such an object says
conversion.py  records to events and back; record_events.py and record.py calls.py are what the formats share
messages.py    messages of providers to events, also for replies; blocks.py, told.py: contents, and what events tell
packing.py     a record packed beside its events
live.py past.py  the same, one record after the other; losses.py: what events tell and their records lack
json_text.py   JSON text to values
files/         paths to records; sources.py joins the two, one history a ``Source``
detection.py   the format of a history; lookalikes.py: what is refused by its name
members.py     the content of a View while records are read or written; repeats.py: records that come again
reading_ahead.py  histories read by processes of their own, on all cores
rewritten.py   sources that their program writes again; pairs.py: records of a call with its result
tips.py        where a fork of a branch begins; samples/: what packing begins with

claude_code/ codex/ openhands_v0/ openhands_v1/ otlp_genai/
one format each, as are agent_framework.py aider.py anthropic_messages.py atif.py chatgpt.py claude_ai.py copilot_cli.py
gemini_cli.py google_adk.py inspect_eval.py langchain.py openai_chat.py openai_responses.py opencode.py pi.py
pydantic_ai.py strands.py swe_agent.py
parts.py       formats whose records are made of parts; trees.py: exports of the chats of web sites
opencode_files.py  where OpenCode keeps its sessions
"""
