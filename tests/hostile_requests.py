"""Requests that nobody should send: bent examples, random JSON, broken bytes, strange paths, methods and headers.

python tests/hostile_requests.py [COUNT]      sends so many (10,000) to a server of its own, and watches its memory
"""

import json
import string
import sys

from hypothesis import strategies as st

WORDS = st.text(max_size=8) | st.sampled_from(
    ["", "../../etc/passwd", "\x00", "<script>", "NaN", "\U0001f600", "a" * 999]
)
NUMBERS = st.integers() | st.floats() | st.sampled_from([0, -1, 2**63, -(2**63) - 1, 10**30, 1e308, -1e308, 5e-324])
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
JSON = st.recursive(SCALARS, lambda x: st.lists(x, max_size=4) | st.dictionaries(WORDS, x, max_size=4), max_leaves=12)
TOKEN = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=12)


def places(thing, at=()):
    """Every place inside a JSON value."""
    yield at
    inside = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, one in inside:
        yield from places(one, (*at, key))


def changed(thing, at, new):
    """The same with another value at one place; without it where the new one is `changed` itself."""
    if not at:
        return new if new is not changed else None
    copy = dict(thing) if isinstance(thing, dict) else list(thing)
    if len(at) == 1 and new is changed:
        del copy[at[0]]
    else:
        copy[at[0]] = changed(copy[at[0]], at[1:], new)
    return copy


@st.composite
def bent(draw, bodies):
    """A request that works, changed in one to three places."""
    path = draw(st.sampled_from(sorted(bodies)))
    body = bodies[path]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.sampled_from(list(places(body))))
        body = changed(body, at, draw(st.just(changed) | JSON))
    return "POST", path, {"content-type": "application/json"}, encoded(body)


@st.composite
def broken(draw, bodies):
    """Bytes that are no JSON, or not all of it, under a type that may be another."""
    path = draw(st.sampled_from(sorted(bodies)))
    whole = encoded(bodies[path])
    cut = draw(st.integers(0, len(whole)))
    deep = draw(st.sampled_from([b"[", b'{"table":', b'{"table":[{"a":']))
    body = draw(st.sampled_from([whole[:cut], whole[:cut] + draw(st.binary(max_size=20)) + whole[cut:], deep * 3000]))
    kind = draw(
        st.sampled_from(["application/json", "text/plain", "multipart/form-data", "application/json; charset=x", ""])
    )
    return "POST", path, {"content-type": kind}, body


@st.composite
def strange(draw, bodies):
    """Another method, path, question mark or header."""
    known = st.sampled_from([*sorted(bodies), "/", "/health", "/metrics", "/v1/models", "/page/main.js"])
    path = draw(
        known | st.lists(TOKEN | st.sampled_from(["..", "%2e%2e", "%00", "v1", "models"]), max_size=5).map("/".join)
    )
    path = f"/{path.lstrip('/')}" + draw(st.just("") | TOKEN.map(lambda x: f"?{x}=%ff&limit={x}"))
    method = draw(st.sampled_from(["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "POST"]))
    headers = draw(st.dictionaries(TOKEN.map(lambda x: f"x-{x}"), TOKEN, max_size=3))
    return method, path, headers, draw(st.binary(max_size=50)) if method not in ("GET", "HEAD") else b""


def encoded(body):
    return json.dumps(body, default=str).encode("utf-8", "surrogatepass")


def requests(bodies):
    """bodies: by path, requests that work."""
    return bent(bodies) | JSON.flatmap(lambda x: posted(bodies, x)) | broken(bodies) | strange(bodies)


def posted(bodies, body):
    return st.sampled_from(sorted(bodies)).map(
        lambda p: ("POST", p, {"content-type": "application/json"}, encoded(body))
    )


def bodies_of(description):
    """The examples of a server's own description, by path."""
    found = {}
    for path, ways in description["paths"].items():
        if "post" in ways:
            found[path] = ways["post"]["requestBody"]["content"]["application/json"]["examples"]["own"]["value"]
    return found


def check(answer, asked):
    """Refused in words or answered; never a mistake of the server's."""
    assert answer.status_code < 500, (asked, answer.status_code, answer.text)
    if answer.status_code >= 400 and asked[0] != "HEAD":
        assert answer.json()["error"]["text"], (asked, answer.text)


def main(count):
    """Against a process of its own."""
    import signal
    import tempfile
    from collections import Counter
    from pathlib import Path

    import httpx
    from hypothesis import HealthCheck, Phase, given, settings
    from small_models import fitted

    from efattn.bench.serving import started

    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.efattn" for name in ("others", "past", "places", "lags", "ordinal")]
        for file in files:
            fitted(file.stem)[0].save(file)
        server, port = started(files)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
        bodies, codes, memory, wrong = bodies_of(client.get("/openapi.json").json()), Counter(), [], []
        before = {path: client.post(path, json=body).text for path, body in bodies.items()}

        def resident():
            told = client.get("/metrics").text.split("\nprocess_resident_memory_bytes ")[1]
            return int(told.split()[0]) / 2**20

        @settings(
            max_examples=count, database=None, deadline=None, derandomize=True, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(requests(bodies))
        def send(asked):
            method, path, headers, body = asked
            answer = client.request(method, path, headers=headers, content=body)
            try:
                check(answer, asked)
            except AssertionError as error:
                wrong.append(str(error)[:600])
            codes[answer.status_code] += 1
            if sum(codes.values()) % max(count // 10, 1) == 0:
                memory.append(round(resident(), 1))

        try:
            send()
            after = {path: client.post(path, json=body).text for path, body in bodies.items()}
            healthy = client.get("/health").json()["status"]
        finally:
            server.send_signal(signal.SIGTERM)
        log = server.communicate(timeout=60)[1]
        wrong += [json.loads(line)["trouble"] for line in log.splitlines() if line.startswith("{")]
    told = f"{sum(codes.values())} requests, statuses {dict(codes)}, memory by tenths {memory} MiB, health {healthy}, "
    sys.stdout.write("\n".join([*wrong, ""]))
    sys.stdout.write(f"{told}the same answers as before: {before == after}, ended with {server.returncode}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
