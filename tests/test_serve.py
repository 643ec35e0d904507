"""One engine: the server answers what Python and the shell answer, alone or in company, and refuses in JSON."""

import asyncio
import json

import polars as pl
import pytest

pytest.importorskip("fastapi", reason="the extra 'serve' is not installed")

import httpx
from shell import forked
from small import efa
from small_models import TABLE, fitted

from efattn.data import Table
from efattn.explorer.app import application
from efattn.explorer.examples import Examples
from efattn.explorer.limits import Limits

MODELS = ("others", "places", "lags", "items")
_ITEMS = []


def model(name):
    if name != "items":
        return fitted(name)
    if not _ITEMS:
        _ITEMS.append(efa(context="past").fit(TABLE, group="user", item="movie", order="at"))
    return _ITEMS[0], TABLE, {"group": "user", "item": "movie", "order": "at"}


def rows_of(table, model):
    """As a request has them: the columns that the model knows."""
    return json.loads(table.select(c for c in table.columns if c in model.schema_.roles.columns).write_json())


@pytest.fixture(scope="module")
def app():
    models = {name: model(name)[0].fitted_ for name in MODELS}
    examples = {name: Examples(models[name], Table.read(model(name)[1])) for name in ("others", "places", "lags")}
    return application(models, examples=examples, limits=Limits(rows=200, body=100_000, group=100))


def ask(app, *requests, headers=None):
    """Requests at once: (method, path, body or None)."""

    async def all_of_them():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return await asyncio.gather(*(client.request(m, p, json=b) for m, p, b in requests))

    answers = asyncio.run(all_of_them())
    return answers[0] if len(answers) == 1 else answers


def post(app, name, verb, **body):
    answer = ask(app, ("POST", f"/v1/models/{name}/{verb}", body))
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", MODELS)
def test_python_the_shell_and_the_server_answer_the_same(app, name, tmp_path):
    engine, table, roles = model(name)
    table = table.head(30)
    rows = rows_of(table, engine)
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    engine.save(tmp_path / "m.efattn")

    def shell(verb, *words):
        return forked(verb, "m.efattn", *words, "--json", cwd=tmp_path).good().json()

    mine = engine.predict(pl.DataFrame(rows))
    assert post(app, name, "predict", table=rows)["rows"] == json.loads(mine.write_json())
    if name == "others":  # that all models answer so in a shell is tested elsewhere
        assert post(app, name, "predict", table=rows)["rows"] == shell("predict", "t.parquet")
    columns = {c: [row[c] for row in rows] for c in rows[0]}
    assert post(app, name, "predict", table=columns) == post(app, name, "predict", table=rows)
    assert {k: x for k, x in post(app, name, "score", table=rows).items() if k != "notes"} == shell(
        "score", "t.parquet"
    )
    evaluated = post(app, name, "evaluate", table=rows)
    assert {k: x for k, x in evaluated.items() if k != "notes"} == shell("evaluate", "t.parquet")
    if "item" in engine.terms_:
        mine = engine.recommend(pl.DataFrame(rows), 3)
        assert post(app, name, "recommend", table=rows, k=3)["rows"] == json.loads(mine.write_json())
        assert post(app, name, "recommend", k=3)["rows"] == json.loads(engine.recommend(k=3).write_json())
        item = table[roles["item"]][0]
        assert post(app, name, "similar", item=item, k=2)["rows"] == json.loads(engine.similar(item, 2).write_json())
    holes = pl.DataFrame(rows).with_columns(
        pl.when(pl.int_range(pl.len()) % 3 > 0).then(c) for c in engine.schema_.roles.of("value")
    )
    if "value" in engine.terms_:
        for draws in (0, 2):
            told = post(app, name, "impute", table=json.loads(holes.write_json()), draws=draws)["rows"]
            filled = engine.impute(holes, draws=draws)
            mine = pl.concat(filled) if draws else filled
            assert [{k: x for k, x in row.items() if k != "draw"} for row in told] == json.loads(mine.write_json())
    if "item" in engine.terms_:
        mine = engine.sample(groups=2, length=2)
        assert post(app, name, "sample", groups=2, length=2)["rows"] == json.loads(mine.write_json())
    if "value" in engine.terms_ and name != "places":
        law = engine.predict_distribution(pl.DataFrame(rows))
        told = post(app, name, "distributions", table=rows, quantiles=[0.2], events=[{"above": 3}, {"between": [1, 2]}])
        told = told["columns"][law.column]
        assert told["mean"] == law.mean.tolist()
        assert told["quantiles"]["0.2"] == law.quantiles(0.2).tolist()
        assert told["events"][0]["probability"] == law.probability(above=3).tolist()
        assert told["events"][1]["probability"] == law.probability(between=(1, 2)).tolist()


@pytest.mark.parametrize(
    ("name", "verb", "how"),
    [
        ("items", "joint", {"orders": 2}),
        ("lags", "forecast", {"steps": 2, "draws": 3, "seed": 1}),
        ("lags", "forecast", {"steps": 1, "draws": 2, "paths": True}),
        ("others", "where-next", {"draws": 3, "seed": 2}),
    ],
)
def test_densities_forecasts_and_what_to_measure_are_the_same_everywhere(app, name, verb, how, tmp_path):
    engine, table, roles = model(name)
    table = table.filter(pl.col(roles["group"]) == table[roles["group"]][-1])
    table = table.select(list(rows_of(table, engine)[0]))
    parts = {"table": table} if verb != "where-next" else {"table": table[2:], "candidates": table[:2]}
    for part, rows in parts.items():
        rows.write_parquet(tmp_path / f"{part}.parquet")
    engine.save(tmp_path / "m.efattn")
    words = [word for option, x in how.items() for word in ([f"--{option}"] if x is True else [f"--{option}", x])]
    ask = (verb, "m.efattn", *(f"{part}.parquet" for part in parts), *words)
    told = post(app, name, verb, **{part: rows_of(rows, engine) for part, rows in parts.items()}, **how)["rows"]
    python = {"joint": "joint_log_density", "where-next": "where_next"}.get(verb, verb)
    mine = getattr(engine, python)(*parts.values(), **how)
    assert told == json.loads(mine.write_json())
    assert told == forked(*ask, "--json", cwd=tmp_path).good().json()


def test_attention_is_that_of_one_group(app):
    engine, table, _ = model("others")
    group = table.filter(pl.col("user") == table["user"][0])
    told = post(app, "others", "attention", table=rows_of(group, engine), layers=True)
    found = engine.attention(group)
    assert told["weights"] == found.mean().tolist()
    assert told["layers"] == found.weights.tolist()
    assert told["targets"] == found.targets
    explained = post(app, "others", "explain", table=rows_of(group, engine), row=1)["rows"]
    assert explained == json.loads(engine.explain(group.select(list(rows_of(group, engine)[0])), 1).write_json())
    two = ask(app, ("POST", "/v1/models/others/attention", {"table": rows_of(table, engine)}))
    assert two.status_code == 422
    assert "one group at a time" in two.json()["error"]["text"]


@pytest.mark.parametrize("name", MODELS)
def test_an_answer_in_company_is_the_one_alone(app, name):
    engine, table, roles = model(name)
    groups = [rows_of(one, engine) for one in table.partition_by(roles["group"], maintain_order=True)[:6]]
    groups.append([{**row, roles["group"]: "x"} for row in groups[0]])
    bodies = [("predict", {"table": rows}) for rows in groups]
    if "item" in engine.terms_:
        bodies += [("recommend", {"table": rows, "k": 3}) for rows in groups]
    bodies.insert(3, ("predict", {"table": [{"nothing": 1}]}))
    alone = [ask(app, ("POST", f"/v1/models/{name}/{verb}", body)).json() for verb, body in bodies]
    together = ask(app, *(("POST", f"/v1/models/{name}/{verb}", body) for verb, body in bodies))
    assert together[3].status_code == 422
    for one, other in zip(alone, (answer.json() for answer in together), strict=True):
        assert one.get("notes") == other.get("notes")
        assert one.get("error") == other.get("error")
        for a, b in zip(one.get("rows", ()), other.get("rows", ()), strict=True):
            words = {name for name, x in a.items() if not isinstance(x, float)}
            assert {n: a[n] for n in words} == {n: b[n] for n in words}
            assert [a[n] for n in a.keys() - words] == pytest.approx(
                [b[n] for n in a.keys() - words], rel=1e-4, abs=1e-4
            )
    calls = {line.split()[0]: float(line.split()[1]) for line in measured(app) if name in line and "engine" in line}
    asked = calls[f'efattn_engine_questions_total{{model="{name}"}}']
    assert calls[f'efattn_engine_calls_total{{model="{name}"}}'] < asked


def measured(app):
    return ask(app, ("GET", "/metrics", None)).text.splitlines()


def test_what_is_wrong_with_a_table_is_told_with_its_place(app):
    rows = [{"user": "a", "movie": "m1", "real": 1.0}, {"user": None, "movie": "m2", "real": 2.0}]
    answer = ask(app, ("POST", "/v1/models/others/predict", {"table": rows}))
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert (error["kind"], error["column"], error["row"]) == ("data", "user", 1)
    mixed = ask(app, ("POST", "/v1/models/others/predict", {"table": [{"user": "a"}, {"user": 1}]}))
    assert mixed.json()["error"]["row"] == 1
    unknown = post(app, "others", "predict", table=[{"user": "a", "movie": "never seen", "real": 1.0}])
    assert any(note.get("column") == "movie" and note["important"] for note in unknown["notes"]), unknown
    values = ask(app, ("POST", "/v1/models/places/recommend", {}))
    assert "no item term" in values.json()["error"]["text"]


@pytest.mark.parametrize(
    ("status", "path", "body"),
    [
        (413, "others/predict", {"table": [{"user": "a", "movie": "m1"}] * 201}),
        (413, "others/predict", {"table": [{"user": "a", "movie": "m1"}] * 101}),
        (413, "others/predict", {"table": [{"user": "a" * 100_000, "movie": "m1"}]}),
        (422, "others/predict", {"table": "a path"}),
        (422, "others/predict", {"table": [], "more": 1}),
        (422, "others/predict", {"table": [{"user": {"deep": 1}}]}),
        (422, "others/predict", {"table": [{"user": "a", "movie": "m1", "real": 10**400}]}),
        (422, "others/sample", {"table": [{"user": "a", "movie": "m1"}, {"movie": "m2"}]}),
        (413, "others/sample", {"groups": 100, "length": 8}),
        (413, "lags/forecast", {"table": [{"day": 1, "station": 1, "tmax": 1.0}], "steps": 3, "draws": 100}),
        (413, "items/joint", {"table": [{"user": "a", "movie": "m1", "at": 1}] * 101, "orders": 1000}),
        (413, "others/where-next", {"table": [], "candidates": [{"user": "a", "movie": "m1"}] * 80, "draws": 100}),
        (422, "others/where-next", {"table": [{"user": "a", "movie": "m1", "real": 1.0}], "candidates": []}),
        (422, "others/joint", {"table": [{"user": "a", "movie": "m1", "real": 1.0}]}),
        (422, "others/forecast", {"table": [{"user": "a", "movie": "m1", "real": 1.0}], "draws": 10}),
        (422, "others/similar", {"item": "nobody"}),
        (422, "others/similar", {"item": ["m1", "m2"]}),
        (422, "others/recommend", {"k": 0}),
        (422, "others/recommend", {"at": "2024-01-01"}),
        (404, "nobody/predict", {}),
        (404, "others/predict/../../../etc/passwd", {}),
        (404, "others/nothing", {}),
    ],
)
def test_bad_requests_are_answered_in_json(app, status, path, body):
    answer = ask(app, ("POST", f"/v1/models/{path}", body))
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["text"]


def test_bodies_that_are_no_json_or_come_in_pieces_are_refused(app):
    async def send(content, headers):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post("/v1/models/others/predict", content=content, headers=headers)

    async def pieces():
        for _ in range(30):
            yield b" " * 10_000

    plain = {"content-type": "application/json"}
    half = b'{"table": [{"user": "\\ud800", "movie": "m1"}]}'
    for content, status in (
        (half, (422,)),
        (b"[" * 50_000, (400, 422)),
        (b"\xff", (400, 422)),
        (b"", (422,)),
        (pieces(), (413,)),
    ):
        answer = asyncio.run(send(content, plain))
        assert answer.status_code in status, answer.text
        assert answer.json()["error"]["text"]
    assert asyncio.run(send(b"{}", {**plain, "content-length": "-1"})).status_code == 400


def test_a_token_is_asked_for_and_other_hosts_are_refused():
    one = {"others": model("others")[0].fitted_}
    guarded = application(one, token="secret", hosts=frozenset({"localhost"}))
    assert ask(guarded, ("GET", "/health", None)).json()["status"] == "ok"
    assert ask(guarded, ("GET", "/", None)).status_code == 200
    for headers in ({}, {"authorization": "Bearer secre"}, {"authorization": "secret"}):
        answer = ask(guarded, ("GET", "/v1/models", None), headers=headers)
        assert answer.status_code == 401
        assert "secret" not in answer.text
    right = {"authorization": "Bearer secret"}
    assert ask(guarded, ("GET", "/v1/models", None), headers=right).json() == {"models": ["others"]}
    assert ask(guarded, ("GET", "/v1/models", None), headers={**right, "host": "elsewhere.org"}).status_code == 421


def test_what_takes_too_long_and_too_many_at_once_is_refused():
    engine, table, _ = model("others")
    body = {"table": rows_of(table.head(20), engine)}
    slow = application({"others": engine.fitted_}, limits=Limits(seconds=1e-6))
    answer = ask(slow, ("POST", "/v1/models/others/evaluate", body))
    assert (answer.status_code, answer.json()["error"]["kind"]) == (408, "time")
    narrow = application({"others": engine.fitted_}, limits=Limits(waiting=1))
    codes = [a.status_code for a in ask(narrow, *[("POST", "/v1/models/others/score", body)] * 8)]
    assert set(codes) == {200, 429}


def test_its_description_has_an_example_that_works_for_every_verb(app):
    told = ask(app, ("GET", "/openapi.json", None)).json()
    for path, ways in told["paths"].items():
        if "post" not in ways:
            continue
        content = ways["post"]["requestBody"]["content"]["application/json"]
        body = content["examples"]["own"]["value"]
        answer = ask(app, ("POST", path, body))
        name, verb = path.split("/")[-2:]
        can = {"recommend": "item" in model(name)[0].terms_, "similar": name != "places"}
        can |= {"distributions": name != "items", "impute": name != "items", "where-next": name != "items"}
        can |= {"joint": name == "items", "forecast": name == "lags"}
        if can.get(verb, True):
            assert answer.status_code == 200, (path, answer.text)


def test_the_card_items_and_example_groups_are_told(app):
    card = ask(app, ("GET", "/v1/models/places", None)).json()
    assert card["place"] == {"latitude": "latitude", "longitude": "longitude"}
    assert all(term["history"] for term in card["terms"].values())
    found = ask(app, ("GET", "/v1/models/others/items?search=M3&limit=5", None)).json()
    assert found["items"] == [["m3"]]
    labels = ask(app, ("GET", "/v1/models/lags/groups", None)).json()["groups"]
    second = ask(app, ("GET", "/v1/models/lags/groups/1", None)).json()
    assert len(labels) == 24
    assert len(second["rows"]) == 2 * second["own"]
    assert ask(app, ("GET", "/v1/models/lags/groups/99", None)).status_code == 404


def test_nothing_but_the_page_is_ever_read_from_disk(app):
    page = ask(app, ("GET", "/", None))
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert "unsafe" not in page.headers["content-security-policy"]
    for path in ("/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page//etc/passwd", "/page/nothing"):
        assert ask(app, ("GET", path, None)).status_code == 404


def test_each_request_is_one_line_of_json_without_its_body(app, caplog):
    with caplog.at_level("INFO", "efattn.serve"):
        post(app, "others", "predict", table=[{"user": "private", "movie": "m1"}])
    line = json.loads(caplog.records[-1].getMessage())
    assert (line["status"], line["model"], line["verb"], line["rows"]) == (200, "others", "predict", 1)
    assert "private" not in caplog.text


def test_the_shell_serves_until_it_is_told_to_stop(tmp_path):
    import os
    import signal
    import subprocess

    from shell import EFATTN, ENVIRONMENT

    model("others")[0].save(tmp_path / "my model.efattn")
    TABLE.write_csv(tmp_path / "t.csv")
    words = [EFATTN, "serve", tmp_path / "my model.efattn", "--table", tmp_path / "t.csv", "--port", "0"]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT, cwd=tmp_path)
    try:
        lines = [server.stderr.readline() for _ in range(2)]
        where = lines[1].split(" at ")[1].split()[0]
        assert httpx.get(f"{where}v1/models/my-model/groups").json()["groups"][0] == "u0"
        os.kill(server.pid, signal.SIGTERM)
        rest = server.communicate(timeout=30)[1].splitlines()
    finally:
        server.kill()
    assert server.returncode == 0, rest
    assert json.loads(rest[0])["path"].endswith("/groups")
    assert rest[-1] == "efattn: Stopped."


def test_the_extra_is_named_where_it_is_absent(monkeypatch):
    import importlib.util

    from efattn import DataError
    from efattn.explorer import serving

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"pip install 'efattn\[serve\]'"):
        serving.check_installed()


def test_models_are_called_by_their_files_names():
    from pathlib import Path

    from efattn.explorer.serving import names_of

    paths = [Path("a/m.efattn"), Path("b/m.efattn"), Path("../ö/../x y.efattn"), Path("..efattn")]
    assert list(names_of(paths)) == ["m", "m-2", "x-y", "model"]


def test_a_mistake_of_ours_is_told_in_json_and_logged(caplog):
    broken = application({"others": model("others")[0].fitted_})
    broken.app.app.get("/broken")(lambda: 1 / 0)
    answer = ask(broken, ("GET", "/broken", None))
    assert answer.status_code == 500
    assert answer.headers["x-request-id"] in answer.json()["error"]["text"]
    assert "ZeroDivisionError" in caplog.text


def test_hostile_requests_leave_the_server_as_it_was(app):
    import hostile_requests
    from hypothesis import HealthCheck, given, settings

    bodies = hostile_requests.bodies_of(ask(app, ("GET", "/openapi.json", None)).json())
    loop, client = asyncio.new_event_loop(), httpx.AsyncClient(transport=httpx.ASGITransport(app))

    def send(method, path, headers, body):
        asked = client.request(method, f"http://localhost{path}", headers=headers, content=body)
        return loop.run_until_complete(asked)

    good = ("POST", "/v1/models/others/predict", {}, json.dumps(bodies["/v1/models/others/predict"]).encode())
    before = send(*good).json()

    @settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(hostile_requests.requests(bodies))
    def hostile(asked):
        hostile_requests.check(send(*asked), asked)

    hostile()
    assert send(*good).json() == before
    loop.run_until_complete(client.aclose())
    loop.close()


def test_the_requests_of_the_documentation_work():
    import re
    import shlex
    from pathlib import Path

    from efattn import datasets

    frame = datasets.noaa_october().filter(pl.col("station").is_in([3804, 3811, 3813, 3816]))
    roles = {"group": "date", "item": "station", "attributes": ["latitude", "longitude"], "value": "tmean"}
    served = application({"weather": efa(terms="value", family="gaussian").fit(frame.head(40), **roles).fitted_})
    page = (Path(__file__).parent.parent / "docs" / "serving.md").read_text()
    asked = [block for block in re.findall(r"```bash\n(.*?)```", page, re.S) if block.startswith("curl")]
    assert len(asked) == 4
    for block in asked:
        words = shlex.split(block)
        answer = ask(served, ("POST", words[1].split(":8765")[1], json.loads(words[-1])))
        assert answer.status_code == 200, answer.text


def test_the_demo_can_be_explored(monkeypatch, tmp_path):
    from efattn.cli import serving, studies
    from efattn.experiments import demo

    told = {}
    monkeypatch.setattr(demo, "run", lambda name, folder, **how: told.update(demo=name) or {})
    show = lambda model, table, sock: (told.update(model=model.name, table=table.name), sock.close())  # noqa: E731
    monkeypatch.setattr(serving, "show", show)
    studies.demo(output=tmp_path, serve=True, port=0)
    assert told == {"demo": "weather", "model": "weather.efattn", "table": "test.csv"}


def test_a_wide_model_is_asked_with_wide_tables():
    words = pl.when(pl.col("real") > 3).then(pl.lit("high")).otherwise(pl.lit("low"))
    table = TABLE.select("real", "count", kind=words)
    engine = efa().fit_wide(table)
    examples = {"wide": Examples(engine.fitted_, Table.read(table))}
    served = application({"wide": engine.fitted_}, examples=examples)
    rows = json.loads(table.head(3).with_columns(real=None).write_json())
    told = post(served, "wide", "predict", table=rows)["rows"]
    assert told == json.loads(engine.predict(pl.DataFrame(rows, schema_overrides={"real": pl.Float64})).write_json())
    card = ask(served, ("GET", "/v1/models/wide", None)).json()
    assert [one["name"] for one in card["wide"]] == table.columns
    assert sorted(card["wide"][2]["levels"]) == ["high", "low"]
    assert ask(served, ("GET", "/v1/models/wide/groups/1", None)).json()["rows"] == [table.row(1, named=True)]
