"""The JSON documents that the command prints for ``--json``, and that the server sends below
``/api``.

A field with the same meaning has the same name in all documents, such as ``conversation``,
``version`` and ``event``. Times are texts in ISO 8601. A time has no zone if its source names no
zone. ``scripts/json-schema`` writes ``docs/json-schema.json`` from the classes of this room.

document.py        the base classes
conversations.py   lists of conversations
events.py          stored events
views.py           Views and condensations
figures.py         usage, cost, condensations
runs.py            the comparison of two runs
comparison.py      the comparison of condensers
page.py            what only the page reads
store.py           the commands ``foldlog store``, followers
verification.py    ``foldlog store verify``
redaction.py       ``foldlog store redact``
files.py           imports, exports and reports
programs.py        ``foldlog doctor`` and ``foldlog secrets``
schema.py          the JSON Schema of all of them
"""
