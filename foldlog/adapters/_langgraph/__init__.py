"""Store the checkpoints of LangGraph.

checkpoints     finds, reads, writes and hides checkpoints; a checkpoint is a version of a
                conversation
branches        finds the branches of a thread, and the checkpoints of a branch
channels        converts the values of a graph's channels into JSON and documents
record_lists    stores the changing list of a thread's records as events
approvals       finds in an interrupt the calls that it asks about, and in an answer the decisions
"""
