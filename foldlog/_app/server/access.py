"""Accept only requests with the token and with an expected host name.

A page of another site can make a browser send requests to this server, but the page does not know
the token. The browser also names the origin of the page, and the server refuses every origin except
its own. The server also refuses unknown host names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import lru_cache
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foldlog._app.server.parameters import is_json
from foldlog._app.server.problems import MEDIA_TYPE, Refusal
from foldlog._reports.answers.page import RefusedDocument
from foldlog._reports.words.safe_text import json_text

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for"
    " 'script'; trusted-types 'none'"
)
_FOR_PROGRAMS = ("/api/", "/metrics", "/healthz", "/mcp", "/v1/")
_MCP = "/mcp"
_SERVICE = "/v1/"
_OTHER_METHODS = {_MCP: ("POST", "DELETE"), "/api/notes": ("POST",)}
"""Maps a path to the methods that it accepts besides GET and HEAD. None of them adds an event: the
MCP tools only read, and notes are not events.
"""
_HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Gate(NamedTuple):
    """What a request must have. If ``token`` is None, no token is required. ``names`` are the host
    names of the server, and ``port`` is its port.
    """

    token: str | None
    names: Collection[str] = ()
    port: int = 0


class Access:
    """Accepts or refuses requests, and adds security headers to the responses of the pages and to
    every refusal.

    ``localhost`` and IP addresses are always accepted, because an attacker cannot make them lead to
    another server. ``service`` answers below ``/v1``, sets its own headers and checks its own
    tokens. A page of another site cannot send such a token, since it would need a header that a
    browser asks about first.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        service: ASGIApp | None = None,
    ) -> None:
        self._app = app
        self._service = service
        self._token = gate.token
        self._names = {"localhost", *(name.lower().rstrip(".") for name in gate.names)}
        self._cookie = f"foldlog-{gate.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if self._service is not None and scope["path"].startswith(_SERVICE):
            hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if self._is_expected(hosts):
                await self._service(scope, receive, send)
                return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                added = [
                    (name.encode(), value.encode())
                    for name, value in _HEADERS.items()
                    if name.encode() not in names
                ]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        response = self._refused_response(Request(scope))
        await (self._app if response is None else response)(scope, receive, with_headers)

    def _refused_response(self, request: Request) -> Response | None:
        """Return the answer to a request that the pages do not get: a refusal, or the address
        without the token. None lets the request through.
        """
        refusal = self._refusal(request)
        if refusal is not None:
            status, reason = refusal
            if self._service is not None and request.scope["path"].startswith(_SERVICE):
                problem = json_text(Refusal(status, reason).document)
                return Response(problem, status, media_type=MEDIA_TYPE)
            path = request.scope["path"]
            allowed = {"allow": ", ".join(_methods_of(path))} if status == 405 else None
            return Response(
                json_text(RefusedDocument(error=reason)), status, allowed, "application/json"
            )
        parameters = request.query_params
        path = request.scope["path"]
        if self._token is None or "token" not in parameters or path.startswith(_FOR_PROGRAMS):
            return None
        # The token is removed from the address: the browser's history and a copied link would
        # contain the token.
        query = urlencode({name: value for name, value in parameters.items() if name != "token"})
        # A path that begins with two slashes would lead to another host.
        path = f"/{path.lstrip('/')}"
        response = RedirectResponse(f"{path}{'?' if query else ''}{query}", 303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        """Return the status and the reason of a refusal, or None for an accepted request."""
        headers = request.headers
        path = request.scope["path"]
        if not self._is_expected(headers.getlist("host")):
            return (
                400,
                "this server does not accept this host name; start it with --allow-host NAME",
            )
        methods = _methods_of(path)
        if request.method not in methods:
            return (405, f"this path does not take {request.method}; use {', '.join(methods)}")
        if request.method == "POST" and path != _MCP and not is_json(headers):
            return (
                403,
                "send a note as application/json, which a form of another site cannot do",
            )
        if path.startswith(("/api/", _MCP)) and _is_of_another_page(headers):
            return (403, "a page of another site may not send requests to this server")
        if self._token is not None and path != "/healthz" and not self._has_token(request):
            return (401, "a token is needed: open the address that 'foldlog serve' printed")
        return None

    def _is_expected(self, hosts: Collection[str]) -> bool:
        """Return whether the headers ``Host`` are one name of this server, or an IP address."""
        if len(hosts) != 1:
            return False
        (host,) = hosts
        name = host
        if ":" in host and not host.endswith("]"):  # an IPv6 address without a port ends with ]
            name, _, port = host.rpartition(":")
            if port and not port.isdigit():
                return False
        return _is_ip_address(name) or name.lower().rstrip(".") in self._names

    def _has_token(self, request: Request) -> bool:
        """Return whether a request has the token: in its header, or in the cookie or the address of
        a page.
        """
        assert self._token is not None
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        tokens = [bearer if scheme.lower() == "bearer" else None]
        if request.scope["path"] != _MCP:  # the clients of this path are programs
            tokens += [request.query_params.get("token"), request.cookies.get(self._cookie)]
        encoded = [token.encode() for token in tokens if token is not None]
        return any(compare_digest(token, self._token.encode()) for token in encoded)


def _methods_of(path: str) -> tuple[str, ...]:
    return ("GET", "HEAD", *_OTHER_METHODS.get(path, ()))


@lru_cache(maxsize=100)
def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _is_of_another_page(headers: Headers) -> bool:
    """Return whether a browser sent this request from a page of another origin.

    A page at another port has another origin, although a browser sends the same cookie to all
    ports.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    return any(
        origin.partition("://")[2] != headers["host"] for origin in headers.getlist("origin")
    )
