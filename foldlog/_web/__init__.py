"""The server of ``foldlog serve`` for the pages of a store in use. The server appends no events,
and stores notes beside the events.

    app.py             the paths of the server; ``docs/PAGE.md`` describes them
    access.py          which requests are answered
    conversations.py   the rows and sums of the list
    pages.py           the documents of open pages
    notes.py           the notes of readers
    metrics.py         the figures for Prometheus
"""
