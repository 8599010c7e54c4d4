"""How the checkpoints of LangGraph are kept.

checkpoints     checkpoints as versions of conversations: find, read, put, hide, copy and erase them
branches        the branches of a thread, and the checkpoints of each
channels        the values of a graph's channels, as JSON and as documents
record_lists    a list of records that changes from checkpoint to checkpoint, as events; the
                messages for a model
"""
