"""What is computed from histories: figures, search, comparisons and audits, with their words and
JSON.

store_info.py       what a store contains, which version made it, and what is pending
audit_database.py   a SQLite database of events, Views and condensations, for SQL and Datasette
audit_file.py       makes, opens and checks the file of the audit database
audit_tables.py     tables that follow a store; audit_follower.py updates them until Ctrl-C
comparison.py       compares condensers in a table
recall_curve.py     compares condensers of several sizes in a plot
divergence.py       finds where two conversations that share events diverge
dropped.py          what a condensation took out of a View, and what the agent needed again
needed_again.py     the dropped terms that the agent needed again, for the newest condensations
replays.py          replays a recorded history with another condenser
recall_score.py     counts the terms that the agent needed again
as_sent.py          the View as it was sent to a model
sent_events.py      which events were sent to a model
v0_ids.py           translates the ids in a condensation of OpenHands V0
runs.py             shows two conversations that share no events side by side
passages.py         finds the words that differ between two texts
facts.py            whether the agent knows some words
sub_agents.py       the calls that began sub-agents, and their results
hand_overs.py       what sub-agents were given, and what they returned
records/            the stored records of imports: by their events, and decoded
figures/            the figures of conversations, with lists and totals
search/             finds words in events and stored records; an index of words
answers/            the JSON of the command, of the page and of MCP
words/              descriptions of events, in words
"""
