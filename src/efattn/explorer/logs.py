"""One line of JSON for each request, and its time among the metrics.

    {"time": "2026-01-01T12:00:00.000Z", "id": "5f...", "method": "POST", "path": "/v1/...", "status": 200, "ms": 4, ..}

Bodies and tokens are never written. A mistake of ours is answered with 500 and the number under which it is logged.
"""

import datetime
import json
import logging
import time
import traceback
import uuid
from typing import Any, final

from efattn.explorer.limits import App, Message, Receive, Refused, Scope, Send
from efattn.explorer.metrics import Metrics

log = logging.getLogger("efattn.serve")
LONGEST = 200  # letters of a path that are kept


@final
class Log:
    """Around everything."""

    def __init__(self, app: App, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, number = time.perf_counter(), 0, uuid.uuid4().hex[:16]

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", number.encode())]
            await send(message)

        scope["efattn_id"], trouble = number, None
        try:
            await self.app(scope, receive, sent)
        except Exception as error:  # the server lives on
            trouble = "".join(traceback.format_exception(error))
            if not status:
                await _sorry(sent, mistake(scope))
        self._note(scope, status, time.perf_counter() - began, number, trouble)

    def _note(self, scope: Scope, status: int, seconds: float, number: str, trouble: str | None) -> None:
        about = scope.get("efattn") or {}
        self.metrics.request(about.get("model", ""), about.get("verb", "other"), status, seconds)
        line: dict[str, Any] = {
            "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "id": number,
            "client": (scope.get("client") or ("", 0))[0],
            "method": scope["method"],
            "path": str(scope["path"])[:LONGEST],
            "status": status,
            "ms": round(1000 * seconds, 2),
            **about,
        }
        if trouble is not None:
            log.error(json.dumps(line | {"trouble": trouble}))
        else:
            log.info(json.dumps(line))


def mistake(scope: Scope) -> Refused:
    """What is told of one of ours."""
    said = f"This is a mistake in efattn; the server's log has it under {scope['efattn_id']}."
    return Refused(500, "mistake", said)


async def _sorry(send: Send, refusal: Refused) -> None:
    body = json.dumps(refusal.to_json()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})
