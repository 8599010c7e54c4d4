"""Print the results of commands for people.

figures_behind.py  what figures lack, and as of when they are
comparison.py      several condensers side by side
condensation.py    a condensation that was made, or would be made
conversations.py   a list of conversations
events.py          events, as lines and in full
followers.py       a list of followers
demo.py            the output of the demo
difference.py      the changes between two Views
explanation.py     why an event is shown or not
log.py             the events of a conversation
view.py            a View
redaction.py       a redaction, and its document
runs.py            two conversations side by side
statistics.py      figures of conversations
verification.py    the findings of a check of a store
"""
