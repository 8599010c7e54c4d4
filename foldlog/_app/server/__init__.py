"""The server of ``foldlog serve``. Without ``--write``, the server writes notes, but no events.

app.py                 the paths of the server; ``docs/PAGE.md`` describes them
documents.py           the documents below ``/api/``
access.py              refuses requests of other sites and without the token
conversations.py       the list of conversations, and its totals
pages.py               the documents of open pages
notes.py               the notes of readers
service                the operations of ``--write``, below ``/v1``
metrics.py             the figures for Prometheus
problems.py            the status and the document of each error
remedies.py            remedies of errors, in words for all languages
parameters.py          the parameters and the body of a request, as typed values
server_sent_events.py  server-sent events, and the task that wakes their streams
http_protocol.py       reads requests, and refuses those that httptools should not accept
allocator.py           how the allocator returns large blocks
threads.py             the threads in which requests are answered
mcp_path.py            the tools of ``foldlog mcp``, loaded at the first request
"""
