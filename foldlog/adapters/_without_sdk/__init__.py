"""What adapters do with a store, whatever the runtime: no SDK is imported here.

opening         the histories that an adapter was given; a method of an adapter as a task
names           the ids of conversations for the ids of a runtime; conversations by their attributes
newest          a document with the version of its history; the newest records
plain           Python values with their types, as JSON
linked          entries that name the entry before them: a tree of messages (pydantic-ai)
shared_state    states that several sessions share (Google ADK)
checkpoints     checkpoints as versions of conversations (LangGraph): put, hide, copy and erase them;
                checkpoint_reading finds and reads them, checkpoint_branches are the branches of a thread
graph_threads   the threads of a graph with their namespaces
channels        the values of a graph's channels, as JSON and as documents
record_lists    a list of records that changes from checkpoint to checkpoint, as events
model_input     the messages for a model, with the summaries of a View in their places
"""
