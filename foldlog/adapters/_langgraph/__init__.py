"""Store the checkpoints of LangGraph.

checkpoints     finds, reads, writes and hides checkpoints, which are versions of conversations
branches        finds the branches of a thread, and the checkpoints of each branch
channels        converts the values of a graph's channels into JSON and documents
record_lists    stores a list of records, which changes from checkpoint to checkpoint, as events
"""
