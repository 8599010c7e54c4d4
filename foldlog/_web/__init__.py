"""The server of ``foldlog serve`` for the pages of a store in use. The server appends no events; it
stores notes beside the events.

``app.py`` has the paths, described in ``docs/PAGE.md``; ``access.py`` decides which requests are
answered. ``conversations.py`` makes the rows and sums of the list. ``pages.py`` makes the documents
of open pages, and ``notes.py`` stores the notes of their readers. ``metrics.py`` has the figures
for Prometheus.
"""
