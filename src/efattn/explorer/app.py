"""The service: models by name, a route for each verb, a page, health and metrics.

    POST /v1/models/NAME/VERB        predict, recommend, impute, sample, joint, forecast, where-next, similar, ...
    GET  /v1/models, /v1/models/NAME, .../items, .../groups, .../groups/NUMBER, /health, /metrics, /openapi.json, /

Routes are made for the models that are there: no part of a request ever leads to a file.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from importlib import resources
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query
from fastapi.exceptions import RequestValidationError
from fastapi.requests import Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from efattn import __version__
from efattn.errors import EfattnError
from efattn.explorer import card
from efattn.explorer.desk import Desk
from efattn.explorer.examples import Examples
from efattn.explorer.limits import Gate, Limits, Refused
from efattn.explorer.logs import Log, mistake
from efattn.explorer.metrics import Metrics
from efattn.explorer.served import Served, text
from efattn.inference import Fitted

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
ANSWERS: dict[int | str, dict[str, Any]] = {
    401: {"description": "No token, or another."},
    408: {"description": "It took too long."},
    413: {"description": "The body or the table is too large."},
    422: {"description": "The table cannot be used as it is: column, row and what to do."},
    429: {"description": "Too many are waiting."},
}


def application(
    models: Mapping[str, Fitted],
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
    examples: Mapping[str, Examples] | None = None,
) -> Any:
    """An ASGI application. models: by the names that requests call them; hosts: the names that it answers to, None for
    any; token: that requests must bear; examples: groups to begin with, by model."""
    limits, metrics = limits or Limits(), Metrics()
    desks = {name: Desk(name, limits, metrics) for name in models}

    @contextlib.asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        yield
        for desk in desks.values():
            desk.close()

    app = FastAPI(title="efattn", version=__version__, docs_url=None, redoc_url=None, lifespan=life)
    _add_errors(app)
    _add_server_routes(app, list(models), metrics)
    for name, fitted in models.items():
        own = (examples or {}).get(name)
        _add_model(app, Served(name, fitted, limits), desks[name], own)
    _add_page(app)
    return Log(Gate(app, limits, token, hosts), metrics)


def _add_model(app: FastAPI, served: Served, desk: Desk, examples: Examples | None) -> None:
    at = f"/v1/models/{served.name}"
    bodies = card.request_examples(served.fitted, examples)
    for verb, (kind, ask) in served.verbs.items():
        _add_verb(app, f"{at}/{verb}", served.name, verb, kind, ask, desk, bodies[verb])
    told = text(card.card(served.name, served.fitted, examples))

    def about() -> Response:
        return _json(told)

    def items(
        search: Annotated[str, Query(max_length=200)] = "",
        limit: Annotated[int, Query(ge=1, le=1000)] = 50,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Response:
        return _json(text(card.items(served.fitted, search, limit, offset)))

    def groups() -> Response:
        return _json(text({"groups": [] if examples is None else examples.labels()}))

    def group(number: int) -> Response:
        if examples is None or not 0 <= number < len(examples):
            raise Refused(404, "group", f"There is no example group {number}; `--table` gives examples.")
        return _json(text(examples.group(number)))

    routes: tuple[tuple[str, Any, str], ...] = (
        ("", about, "The model card"),
        ("/items", items, "Names of items"),
        ("/groups", groups, "Example groups"),
        ("/groups/{number}", group, "The rows of one example group"),
    )
    for path, told_by, words in routes:
        app.get(at + path, tags=[served.name], summary=words, operation_id=_id(served.name, path or "card"))(told_by)


def _add_verb(
    app: FastAPI, path: str, name: str, verb: str, kind: Any, ask: Any, desk: Desk, example: dict[str, Any]
) -> None:
    async def answer(request: Request, body: Any) -> Response:
        question = ask(body)
        request.scope["efattn"] = {"model": name, "verb": verb, "rows": question.rows}
        return _json(await desk.answer(question))

    told = Annotated[kind, Body(openapi_examples={"own": {"summary": f"As {name} may be asked", "value": example}})]
    answer.__annotations__ |= {"body": told}
    words = (kind.__doc__ or "").strip()
    how: dict[str, Any] = {"tags": [name], "summary": verb, "description": words, "responses": ANSWERS}
    app.post(path, operation_id=_id(name, verb), **how)(answer)


def _id(name: str, verb: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in f"{name}_{verb.strip('/')}")


def _add_server_routes(app: FastAPI, names: list[str], metrics: Metrics) -> None:
    def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    def models() -> dict[str, list[str]]:
        return {"models": names}

    def measured() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4")

    app.get("/health", summary="Whether it is there", tags=["server"])(health)
    app.get("/v1/models", summary="The models there are", tags=["server"])(models)
    app.get("/metrics", summary="Counts and times, as Prometheus reads them", tags=["server"])(measured)


def _add_page(app: FastAPI) -> None:
    """The files of the page, read once: a request can name one of these, and nothing else."""
    files = {one.name: one.read_bytes() for one in resources.files("efattn.explorer").joinpath("page").iterdir()}

    def add(path: str, name: str) -> None:
        kind = KINDS.get(name[name.rfind(".") :], "application/octet-stream")

        def page() -> Response:
            return Response(files[name], media_type=kind)

        app.get(path, include_in_schema=False)(page)

    for name in files:
        add(f"/page/{name}", name)
    if "index.html" in files:
        add("/", "index.html")


def _json(told: str, status: int = 200) -> Response:
    return Response(told, status_code=status, media_type="application/json")


def _add_errors(app: FastAPI) -> None:
    """Whatever goes wrong is one object: kind, text, and what it is about."""

    def refused(request: Request, error: Any) -> Response:
        answer = _json(json.dumps(error.to_json()), error.status)
        if error.status == 429:
            answer.headers["retry-after"] = "1"
        return answer

    def data(request: Request, error: Any) -> Response:
        about = {name: getattr(error, name) for name in ("column", "row", "option")}
        known = {name: x for name, x in about.items() if x is not None}
        return _json(json.dumps(Refused(422, "data", str(error), **known).to_json()), 422)

    def body(request: Request, error: Any) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:200]
        return _json(json.dumps(Refused(422, "request", f"{where}: {first['msg']}", where=where).to_json()), 422)

    def http(request: Request, error: Any) -> Response:
        said = {404: "There is nothing at this address; /openapi.json lists what there is."}
        words = said.get(error.status_code, str(error.detail))
        answer = _json(json.dumps(Refused(error.status_code, "http", words).to_json()), error.status_code)
        answer.headers.update(error.headers or {})
        return answer

    def ours(request: Request, error: Any) -> Response:
        return _json(json.dumps(mistake(request.scope).to_json()), 500)

    app.add_exception_handler(Exception, ours)  # logged by whoever is around it
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(EfattnError, data)
    app.add_exception_handler(RequestValidationError, body)
    app.add_exception_handler(HTTPException, http)
