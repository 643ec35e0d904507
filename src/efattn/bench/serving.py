"""A server under load: requests per second and how long each waits, with one client and with 64, on loopback.

    weather    predict, one day of 110 stations           baskets    recommend, one basket of five of 1,000 items

The server is a process of its own, as `efattn serve` starts it; clients are here, each on a connection that is kept and
asking again as soon as it is answered. Every answer is looked at: what is not 200 counts as an error.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from efattn.bench.keeping import keep

CLIENTS = (1, 64)
SECONDS, WARM = 8.0, 1.0
ITEMS = 1_000


def weather(folder: Path) -> dict[str, Any]:
    """Fits and saves a model, and gives a request to it."""
    import polars as pl

    from efattn import EFA, Training, datasets

    frame = datasets.noaa_october()
    model = EFA(terms="value", training=Training(epochs=10, device="cpu"))
    roles: dict[str, Any] = {"group": "date", "item": "station", "attributes": ["latitude", "longitude"]}
    model.fit(frame.filter(pl.col("date").dt.year() < 1993), **roles, value="tmean", progress=False)
    model.save(folder / "weather.efattn")
    day = frame.filter(pl.col("date") == frame["date"].max()).drop("tmax", "tmin")
    return {"model": "weather", "verb": "predict", "body": {"table": json.loads(day.write_json())}}


def baskets(folder: Path) -> dict[str, Any]:
    import polars as pl

    from efattn import EFA, Training

    draw, size = np.random.default_rng(0), 5
    item = np.concatenate([draw.permutation(ITEMS)[:size] for _ in range(1_000)] + [np.arange(ITEMS)])
    basket = np.concatenate([np.repeat(np.arange(1_000), size), 1_000 + np.arange(ITEMS) // size])
    table = pl.DataFrame({"basket": basket, "product": [f"product {k}" for k in item]})
    model = EFA(width=64, companions=None, refit=False, training=Training(epochs=1, device="cpu"))
    model.fit(table, group="basket", item="product", progress=False).save(folder / "baskets.efattn")
    rows = json.loads(table.head(size).write_json())
    return {"model": "baskets", "verb": "recommend", "body": {"table": rows, "k": 10}}


def main(folder: Path, seconds: float = SECONDS) -> None:
    records = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        asked = [weather(place), baskets(place)]
        server, port = started([place / f"{one['model']}.efattn" for one in asked])
        try:
            print("                              clients   per second   p50 ms   p99 ms   errors")
            for one in asked:
                for clients in CLIENTS:
                    found = asyncio.run(load(port, one, clients, seconds))
                    rows = len(one["body"]["table"])
                    records.append({"model": one["model"], "verb": one["verb"], "rows": rows, **found})
                    print(
                        f"{one['model']:8} {one['verb']:10} {rows:4} rows {clients:8} {found['per_second']:12.1f}"
                        f" {found['p50_ms']:8.1f} {found['p99_ms']:8.1f} {found['errors']:8}",
                        flush=True,
                    )
        finally:
            server.send_signal(signal.SIGTERM)
            server.communicate(timeout=60)
    keep(folder, "serving", records, cores=os.cpu_count(), seconds=seconds)


def started(models: list[Path]) -> tuple[subprocess.Popen[str], int]:
    """A server, and its port."""
    words = [sys.executable, "-m", "efattn", "serve", *map(str, models), "--port", "0", "--quiet"]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    for line in server.stderr:
        if " at http" in line:
            return server, int(line.split(" at ")[1].split()[0].rstrip("/").rsplit(":", 1)[1])
    raise RuntimeError("the server did not start")


async def load(port: int, asked: dict[str, Any], clients: int, seconds: float) -> dict[str, Any]:
    """Seconds of each request that ended after the warm-up."""
    body = json.dumps(asked["body"]).encode()
    head = f"POST /v1/models/{asked['model']}/{asked['verb']} HTTP/1.1\r\nHost: localhost\r\n"
    request = f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    begin = time.perf_counter() + WARM
    results = await asyncio.gather(*(_client(port, request, begin, begin + seconds) for _ in range(clients)))
    times = np.array([one for taken, _ in results for one in taken])
    p50, p99 = (float(1000 * np.quantile(times, p)) if len(times) else 0.0 for p in (0.5, 0.99))
    errors = sum(wrong for _, wrong in results)
    return {
        "clients": clients,
        "requests": len(times),
        "per_second": len(times) / seconds,
        "p50_ms": p50,
        "p99_ms": p99,
        "errors": errors,
    }


async def _client(port: int, request: bytes, begin: float, end: float) -> tuple[list[float], int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    taken, wrong = list[float](), 0
    while (start := time.perf_counter()) < end:
        writer.write(request)
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length"))
        await reader.readexactly(length)
        if head.split(b" ", 2)[1] != b"200":
            wrong += 1
        elif (now := time.perf_counter()) >= begin:
            taken.append(now - start)
    writer.close()
    return taken, wrong


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results"))
