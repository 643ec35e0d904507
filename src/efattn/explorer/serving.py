"""Models served on an address until somebody says stop: open requests are answered first."""

import re
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from efattn.errors import DataError

if TYPE_CHECKING:  # what is wrong with an address or a name is told before torch is imported
    from efattn.explorer.examples import Examples
    from efattn.explorer.limits import Limits
    from efattn.inference import Fitted

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
MISSING = "Serving needs FastAPI and uvicorn, which are not installed: pip install 'efattn[serve]'."


def check_installed() -> None:
    """A DataError that names the extra, where it is absent."""
    import importlib.util

    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise DataError(MISSING)


def names_of(paths: Sequence[Path]) -> dict[str, Path]:
    """Models by the names that requests call them: those of their files, made fit for an address, and distinct."""
    found = dict[str, Path]()
    for path in paths:
        plain = re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.") or "model"
        name, number = plain, 2
        while name in found:
            name, number = f"{plain}-{number}", number + 1
        found[name] = path
    return found


def address(sock: socket.socket) -> str:
    """Where a page is found that listens there."""
    host, port = sock.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    return f"http://{shown}:{port}/"


def listening(host: str, port: int) -> socket.socket:
    """A socket, or a DataError that says why there is none."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves out NODELAY
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as error:
        said = f"Nothing can listen at {host} port {port}: {error.strerror or error}. Choose another --port."
        raise DataError(said, option="port") from error
    return sock


def serve(
    models: "Mapping[str, Fitted]",
    sock: socket.socket,
    *,
    limits: "Limits | None" = None,
    token: str | None = None,
    hosts: frozenset[str] | None = LOCAL,
    examples: "Mapping[str, Examples] | None" = None,
    ready: Callable[[], object] = lambda: None,
) -> None:
    """Until SIGINT or SIGTERM. ready: called when it listens."""
    import uvicorn

    from efattn.explorer.app import application

    app = application(models, limits=limits, token=token, hosts=hosts, examples=examples)
    patience = 31 if limits is None else int(limits.seconds) + 1
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=patience,
        h11_max_incomplete_event_size=64 * 1024,
        lifespan="on",
    )
    server = _server(config, ready)
    before = [signal.signal(one, _nothing) for one in _stops()]  # uvicorn raises what stopped it once more when done
    try:
        server.run(sockets=[sock])
    finally:
        for one, handler in zip(_stops(), before, strict=True):
            signal.signal(one, handler)


def _stops() -> tuple[signal.Signals, ...]:
    return signal.SIGINT, signal.SIGTERM


def _nothing(number: int, frame: FrameType | None) -> None:
    """The server has stopped already."""


def _server(config: Any, ready: Callable[[], object]) -> Any:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            ready()

    return Server(config)
