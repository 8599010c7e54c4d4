"""The interface for agent runtimes.

histories.py       a store of histories
log.py             the log of one history: append and read events, Views, documents
condensing.py      the steps before a call of the model: condense if due, return the View
run.py             what a running agent adds: calls of tools, effects, leases, replies
history.py         one history, with its past: explain, export, redact, fork
streamed_reply.py  the reply of a model while the model writes it
request_names.py   name the request that a reply answers
sent_requests.py   the request that a reply answered, made again
lease.py           at most one worker drives a history
to_resume.py       which conversations their workers left unfinished
effects.py         run the tool of a call at most once; the state of each call
once.py            do a piece of work once, and record its result
runtime_calls.py   run the tools of another agent runtime at most once
sub_agents.py      begin sub-agents for calls, and close their calls
started_calls.py   the calls that a worker began, and those that other workers left behind
continuing.py      go on with a history in another program
threads.py         threads that run blocking calls for asyncio
recording.py       append records, in the format of another program
"""
