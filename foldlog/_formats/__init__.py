"""Histories of other agents; ``foldlog.formats`` is the face.

registry.py    which formats there are; each is a file or a folder beside it, with one ``Format``
               object
format.py      what such an object says
conversion.py  records to events and back; record_events.py and record.py calls.py are what the
               formats share
messages.py    messages of providers to events, also for replies; blocks.py, event_fields.py:
               contents, and fields of
               events
skeleton.py    what lists, figures and titles need of a record; what stays of a redacted one;
               user_requests.py: what a user asks
decoded.py     the same for formats without a skeleton of their own: from the events that they
               become
usage.py       calls of models, and how events tell them; imported_calls.py: those of one history;
               summed_calls.py:
               added up; hash_set.py: which ones are known
encoding.py    events to records: those that are stored, and others; export_notes.py: what an export
               leaves out
json_text.py   JSON text to values
files/         paths to records
detection.py   the format of a history
members.py     the content of a View while records are read or written; repeats.py: records that
               come again
reply_encoders.py  the calls of a reply together, and their results; places.py: which events are of
                   one record
forking.py     where a fork of a branch begins, and what it lacks; replacing.py: events that a
               source has again

claude_code/ codex/ openhands_v0/ openhands_v1/ otlp_genai/
one format each, as are aider.py anthropic_messages.py atif.py chatgpt.py claude_ai.py
copilot_cli.py gemini_cli.py inspect_eval.py openai_chat.py openai_responses.py opencode.py pi.py
qwen_code.py swe_agent.py cursor.py; those of agent SDKs stand beside their adapters, in
foldlog/adapters/_records/
trees.py       exports of the chats of web sites
opencode_files.py  where OpenCode keeps its sessions
"""
