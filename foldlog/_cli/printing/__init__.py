"""Print the results of commands for people.

comparison.py       several condensers side by side
condensation.py   a condensation that was made, or would be
conversations.py  a list of conversations; followers.py: of followers
demo.py           what the demo shows
difference.py     what changed between two Views
explanation.py    why an event is shown or not
log.py            the events of a conversation; view.py: a View
redaction.py      a redaction, and its document
runs.py           two conversations beside each other
statistics.py     figures of conversations
verification.py   what a check of a store found
"""
