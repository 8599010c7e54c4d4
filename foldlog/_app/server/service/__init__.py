"""The HTTP service of ``foldlog serve --write``: the paths below ``/v1`` that ``docs/HTTP.md``
describes.

service.py      the ASGI application: finds the operation of a request, and answers
operations.py   an operation: its method, path, scope, and the types of its body and answer
request.py      a request to an operation: its conversation, its headers, its lease
tokens.py       who may do what: the tokens, their scopes, filters and limits
streams.py      streams of conversations, in the protocol Durable Streams
stream_states.py   what the protocol notes in a stream, and who may write a reply
stream_sources.py  what the protocol reads: a stream, or the events of a conversation
encoding.py     the JSON of answers, made in steps
exports.py      the exports that go on where their page before ended
openapi.py      the OpenAPI document, made from the operations

conversations.py, events.py, views.py, calls.py, leases.py, follow.py, search.py
                the operations, each file about one thing
reports.py      the operations that answer as the commands do: figures, exports, comparisons
"""
