"""Import histories of other agents, and export histories in their formats.

    events = decode(records, format="openhands-v0")     # with the ids 0, 1, 2, …; event.origin.id
                                                        # is the id in the source
    records = encode(events, format="openhands-v0")

    histories.import_("runs/")                          # every history in files and folders
    history.append_records([record], format="openai-chat")

A record is a JSON object that the source wrote for one step. In the oldest files of OpenHands V0, a
record is an array of two objects. The store keeps the records too, so an export returns the same
bytes that the source had.

The files of this package, which opens no store:

registry.py         lists all formats; a format is a file or a folder in this folder
format.py           defines the fields of a ``Format``
conversion.py       turns records into events and back
record_events.py    collects the events of one record
record.py           reads fields, ids and times of records
open_calls.py       finds the call that a result answers
messages.py         turns messages of providers into events, also for live replies
replies.py          turns the reply of a model, as SDKs give it, into events
deltas.py           the pieces of a reply that is being written, in no provider's form
reply_streams.py    makes deltas of what the SDKs of models give while a model writes
blocks.py           converts contents between Anthropic's blocks and events
event_fields.py     reads fields of events
skeleton.py         selects the fields of a record for lists, figures and titles; a redaction does
                    not delete these fields
user_requests.py    finds the request of a user
record_decoding.py  decodes records, and reads their names, for formats without a skeleton
model_calls.py      finds calls of models in events
imported_calls.py   finds the calls of models in one history
summed_calls.py     adds up calls of models
hash_set.py         recognizes calls that were counted before
encoding.py         turns events into records
export_notes.py     counts the events and fields that an export leaves out
json_text.py        parses JSON text
native_sessions/    writes sessions in which other programs go on with a history
files/              finds and reads the records at a path
detection.py        detects the format of a history
view_members.py     follows the content of a View while records are read or written
repeated_records.py finds records that a source repeats
unread_fields.py    finds texts of a record that no event contains
reply_encoders.py   writes the calls of a reply together, then the results of the calls
event_places.py     numbers the events that were made from one record
forking.py          finds where a fork of a branch begins, and which records the fork lacks
prompt_changes.py   decides which event stores a change of a prompt
resuming.py         continues a decoder from a stored state
repeated_events.py  finds events that a source repeats

claude_code/ codex/ openhands_v0/ openhands_v1/ otlp_genai/ aider.py anthropic_messages.py atif.py
chatgpt.py claude_ai.py copilot_cli.py cursor.py gemini_cli.py inspect_eval.py openai_chat.py
openai_responses.py opencode.py pi.py qwen_code.py and swe_agent.py define one format per file or
folder. foldlog/adapters/_records/ holds the formats of agent SDKs, next to their adapters.

chat_exports.py     reads the chats that web sites export
opencode_files.py   finds the sessions of OpenCode
opencode_rows.py    recognizes older rows of a session of OpenCode that have not changed
"""

from foldlog._base import lazy

_HOMES = lazy.homes_of(__path__[0])
__all__ = ["FORMATS", *_HOMES]
_named = lazy.lazy_getattr(__name__, _HOMES)


def __getattr__(name: str) -> object:
    if name == "FORMATS":
        from foldlog.formats.registry import formats

        return tuple(formats())
    return _named(name)
