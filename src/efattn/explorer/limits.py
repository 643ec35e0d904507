"""What a stranger may ask for: sizes, time, hosts and a token, looked at before anything else is.

A request that is too large or comes from elsewhere is answered before its body is read; nothing here knows a model.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, final

from starlette.exceptions import HTTPException

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = ("/health", "/", "/page/")  # what needs no token: a sign of life, and the page, which asks for it
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@final
@dataclass(frozen=True)
class Limits:
    """body: bytes of a request; rows: of its table; group: rows of one group, if the fit had none that long:
    what it takes grows with their square; seconds: until an answer; waiting: requests to one model; cells: numbers in
    one answer about attention, and ten times the rows that one answer may go through."""

    body: int = 4 * 2**20
    rows: int = 5_000
    group: int = 1_000
    seconds: float = 30.0
    waiting: int = 256
    cells: int = 1_000_000


class Refused(Exception):
    """An answer that is no result: its status, kind and text."""

    def __init__(self, status: int, kind: str, text: str, **about: Any) -> None:
        super().__init__(text)
        self.status, self.kind, self.text, self.about = status, kind, text, about

    def to_json(self) -> dict[str, Any]:
        return {"error": {"kind": self.kind, "text": self.text, **self.about}}


class TooLarge(Refused):
    def __init__(self, most: int) -> None:
        super().__init__(413, "body too large", f"A request has at most {most:,} bytes. Ask about fewer rows at once.")


@final
class Gate:
    """Around the application: who may come in, and with how much. hosts: the names that this server is called by, None
    for any; a page elsewhere that points its own name here is thus refused."""

    def __init__(self, app: App, limits: Limits, token: str | None = None, hosts: frozenset[str] | None = None) -> None:
        self.app, self.limits, self.hosts = app, limits, hosts
        self.token = None if token is None else f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = _with_headers(send)
        headers = dict[bytes, bytes](scope["headers"])
        refusal = self._refusal(str(scope["path"]), headers)
        if refusal is not None:
            await _refuse(sent, refusal)
            return
        await self.app(scope, self._counted(receive), sent)

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Refused | None:
        if self.hosts is not None and _host(headers.get(b"host", b"")) not in self.hosts:
            return Refused(421, "wrong host", "This server answers to the name that it was started with, no other.")
        free = path in OPEN[:2] or path.startswith(OPEN[2])
        if self.token is not None and not free:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.token):
                return Refused(401, "token", "Send the header 'Authorization: Bearer TOKEN' with the server's token.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 18:
            return Refused(400, "length", "Content-Length is not a number of bytes.")
        return TooLarge(self.limits.body) if int(length) > self.limits.body else None

    def _counted(self, receive: Receive) -> Receive:
        """Bodies without a length are counted as they come."""
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self.limits.body:
                raise HTTPException(413, TooLarge(self.limits.body).text)  # which FastAPI does not take for a bad body
            return message

        return counted


def _host(value: bytes) -> str:
    """The name without its port; of [::1]:80 what is between the brackets."""
    text = value.decode("latin-1").lower()
    return text[1:].split("]")[0] if text.startswith("[") else text.split(":")[0]


def _with_headers(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            known = {name.lower() for name, _ in message.get("headers", [])}
            more = [(n.encode(), x.encode()) for n, x in HEADERS.items() if n.encode() not in known]
            message["headers"] = [*message.get("headers", []), *more]
        await send(message)

    return sent


async def _refuse(send: Send, refusal: Refused) -> None:
    body = json.dumps(refusal.to_json()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close")] + [(b"www-authenticate", b"Bearer")] * (refusal.status == 401)
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
