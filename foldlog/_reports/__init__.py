"""The reports about a store.

audit_database.py   a SQLite database of events, Views and condensations, for SQL and Datasette
audit_file.py       makes, opens and checks the file of the audit database
comparison.py       compares condensers in a table
recall_curve.py     compares condensers of several sizes in a plot
divergence.py       finds where two conversations that share events diverge
dropped.py          what a condensation took out of a View, and what the agent needed again
needed_again.py     the dropped terms that the agent needed again, for the newest condensations
replays.py          replays a recorded history with another condenser
recall_score.py     counts the terms that the agent needed again
as_sent.py          the View as it was sent to a model
sent.py             which events were sent to a model
own_ids.py          translates the ids in a condensation of OpenHands V0
sub_agents.py       the calls that began sub-agents, and their results
runs.py             shows two conversations that share no events side by side
search.py           searches the stored records and events, without an index
passages.py         finds the words that differ between two texts
"""
