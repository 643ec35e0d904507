"""A model is one file that predicts anywhere what it predicted when it was saved.

python tests/test_model_files.py     writes tests/reference/*: once per release, never over an old one
"""

import copy
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, latent, ratings, weather

import efattn
from efattn import DataError, ModelFileError, Training, families, storage
from efattn.estimators import saving

REFERENCE = Path(__file__).parent / "reference"
RATINGS, WEATHER = ratings(), weather()
ITEMS = {"group": "user", "item": "movie"}
PLACES = {"group": "day", "attributes": ["latitude", "longitude"], "value": "tmax"}
MULTI = {("tmax", "tmin"): families.MultivariateGaussian(2)}
CASES = {
    "items": (efa(), RATINGS, ITEMS),
    "items, past": (efa(context="past"), RATINGS, {**ITEMS, "order": "at"}),
    "items, all": (efa(support="all"), RATINGS, ITEMS),
    "both": (efa(), RATINGS, {**ITEMS, "value": "rating"}),
    "both, past": (efa(context="past", family=families.Poisson(shift=1)), RATINGS,
                   {**ITEMS, "value": "rating", "order": "at"}),
    "values of items": (efa(terms="value"), RATINGS, {**ITEMS, "value": "real"}),
    "values alone": (efa(), RATINGS, {"group": "user", "value": "real", "order": "row"}),
    "places": (efa(neighbours=3), WEATHER, PLACES),
    "lags": (efa(lags=2, terms="value"), WEATHER, {**PLACES, "item": "station", "time": "day"}),
    "lags of items": (efa(lags=1), WEATHER, {"group": "day", "item": "station", "value": "tmax", "time": "day"}),
    "several columns": (efa(), WEATHER, {**PLACES, "value": ["tmax", "tmin"]}),
    "a mapping": (efa(family=MULTI, terms="value"), WEATHER,
                  {"group": "day", "item": "station", "value": ["tmin", "tmax"]}),
    "a list": (efa(family=["gaussian", families.Gamma()], terms=["value"]), RATINGS,
               {**ITEMS, "value": ["real", "size"]}),
    "exposure": (efa(family="poisson", terms="value"), RATINGS, {**ITEMS, "value": "count", "exposure": "hours"}),
    "max_length, norm": (efa(max_length=3, norm="pre", feed_forward=8), RATINGS, {**ITEMS, "value": "real"}),
    "item centres": (efa(standardise="item"), RATINGS, {**ITEMS, "value": "real"}),
    "several keys": (efa(), WEATHER, {"group": "day", "item": ["station", "latitude_name"], "value": "tmax"}),
    "latent items": (latent(intercept=True), RATINGS, ITEMS),
    "latent values": (latent(terms="value"), RATINGS, {**ITEMS, "value": "real"}),
    "latent both": (latent(context="past"), RATINGS, {**ITEMS, "value": "rating", "order": "at"}),
    "latent places": (latent(neighbours=2), WEATHER, PLACES),
}  # fmt: skip
CASES |= {
    f"family {name}": (efa(family=name, terms="value"), RATINGS, {**ITEMS, "value": column})
    for name, column in {
        "bernoulli": "liked", "binomial": "rating", "poisson": "count", "negative_binomial": "count",
        "gaussian": "real", "gamma": "size", "exponential": "size", "beta": "share", "ordinal": "rating",
        "multivariate_gaussian": "real",
    }.items()
}  # fmt: skip


def fitted(name, validation=0.2, **parameters):
    model, table, roles = CASES[name]
    if "latitude_name" in roles.get("item", ()):
        table = table.with_columns(latitude_name=pl.format("at {}", pl.col("latitude").round(1)))
    return copy.deepcopy(model).set_params(**parameters).fit(table, **roles, validation=validation), table


def answers(model, table):
    """Everything a model says of a table, as plain numbers and names."""
    found = {"score": model.scores(table)}
    found["log_likelihood"] = model.log_likelihood(table).select(pl.col("^.*_log_likelihood$")).to_dict(as_series=False)
    if "value" in model.terms_:
        predicted = model.predict(table)
        found["predict"] = predicted.select(pl.exclude(table.columns)).to_dict(as_series=False)
    if "item" in model.terms_:
        found["recommend"] = model.recommend(table, k=4).to_dict(as_series=False)
        found["first"] = model.recommend(k=3).to_dict(as_series=False)
    found["summary"] = model.summary()
    return found


PROGRAM = """
import json, pickle, sys
import torch
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
import polars as pl
from test_model_files import answers
import efattn
for path in sys.argv[2:]:
    model, table = efattn.load(path), pl.read_parquet(path + ".parquet")
    with open(path + ".json", "w") as file:
        json.dump(answers(model, table), file)
"""


def test_a_loaded_model_says_the_same_in_another_process(tmp_path):
    """Bit for bit, in another folder, without the training data."""
    told, paths = {}, []
    for number, name in enumerate(CASES):
        model, table = fitted(name)
        path = tmp_path / f"{number}.efattn"
        model.save(path)
        table.write_parquet(f"{path}.parquet")
        told[str(path)] = (name, json.loads(json.dumps(answers(model, table))))
        paths.append(str(path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(Path(__file__).parent), *paths]
    subprocess.run(command, cwd=elsewhere, check=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    for path, (name, before) in told.items():
        assert json.loads(Path(f"{path}.json").read_text()) == before, name


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"family": families.Poisson(shift=1), "training": Training(rate=0.01, patience=None, clip=None)},
        {"family": MULTI | {"x": "gaussian"}, "terms": ("item", "value"), "lags": 0},
        {"family": {"is": "gamma", "value": families.Gaussian(variance=2.0)}},
        {"family": ["gaussian", families.NegativeBinomial()], "terms": ["value"], "norm": "post", "max_length": 7},
        {"width": np.int64(16), "seed": np.int32(3), "dropout": np.float32(0.25)},
    ],
)
def test_parameters_survive(tmp_path, parameters):
    model = fitted("items")[0].set_params(**parameters)
    if "width" in parameters:
        model = efa(**parameters).fit(RATINGS, **ITEMS)
    if "max_length" in parameters:
        model = efa(**parameters).fit(RATINGS, **ITEMS, value=["real", "count"])
    model.fitted_ = replace(model.fitted_, parameters=model.get_params(deep=False))
    model.save(tmp_path / "x")
    assert efattn.load(tmp_path / "x").get_params() == model.get_params()


def test_fitted_attributes_survive(tmp_path):
    model, _ = fitted("both")
    model.save(tmp_path / "x")
    loaded = efattn.load(tmp_path / "x")
    for name in ("family_", "support_", "terms_", "history_", "notes_", "interrupted_"):
        assert getattr(loaded, name) == getattr(model, name), name
    for name in ("longest", "sizes", "units", "frames"):
        assert getattr(loaded.fitted_, name) == getattr(model.fitted_, name), name


def test_a_loaded_model_can_be_updated_and_saved_again(tmp_path):
    model, table = fitted("both")
    model.save(tmp_path / "x")
    loaded = efattn.load(tmp_path / "x")
    assert loaded.update(table).score(table) == model.update(table).score(table)
    loaded.save(tmp_path / "x")
    assert efattn.load(tmp_path / "x").score(table) == loaded.score(table)


def test_a_parameter_that_cannot_be_saved_is_named(tmp_path):
    model, _ = fitted("items")
    with pytest.raises(DataError, match="cannot be saved"):
        saving.save(replace(model.fitted_, parameters={"family": print}), tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_missing_codes_survive(tmp_path):
    model = efa().fit(RATINGS, group="user", value="real", missing=[float("nan"), float("inf"), -1, "n/a"])
    model.save(tmp_path / "x")
    loaded = efattn.load(tmp_path / "x")
    assert loaded.schema_.roles == model.schema_.roles
    assert loaded.score(RATINGS) == model.score(RATINGS)


# ---- files that are sealed correctly and lie


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "x.efattn"
    fitted("both, past")[0].save(path)
    return storage.read(path, "model")


def deep(about, *keys, to):
    *path, last = keys
    for key in path:
        about = about[key]
    about[last] = to


def edited(*keys, to):
    return lambda about, tensors: deep(about, *keys, to=to)


def without(key):
    return lambda about, tensors: about.pop(key)


def tensor(name, change):
    def edit(about, tensors):
        key = next(key for key in tensors if key.endswith(name))
        tensors[key] = change(tensors[key])
        if tensors[key] is None:
            del tensors[key]

    return edit


ORDINAL = {"name": "product", "parts": [{"name": "ordinal", "levels": 10**9, "low": 0}]}
WIDE = {"name": "product", "parts": [{"name": "multivariate_gaussian", "columns": 10**6}]}
LIES = {
    **{f"{name}=10**9": edited("parameters", name, to=10**9) for name in ("layers", "width", "heads", "feed_forward")},
    "layers=5000": edited("parameters", "layers", to=5000),
    "lags": edited("parameters", "lags", to=10**9),
    "lags of the columns": edited("schema", "lags", to=10**9),
    "max_length": edited("schema", "max_length", to=2),
    "clock of no kind": edited("schema", "clock", to="sundial"),
    "clock, no gaps": edited("schema", "clock", to="number"),
    "gaps, no clock": edited("parameters", "gaps", to=True),
    "gaps, no choice": edited("parameters", "gaps", to="often"),
    "longest": edited("longest", to=10**15),
    "longest, no number": edited("longest", to="many"),
    "levels": edited("family", to=ORDINAL),
    "columns": edited("family", to=WIDE),
    "no product": edited("family", to={"name": "poisson"}),
    "no family": edited("family", to=None),
    "an unknown family": edited("family", to={"name": "cauchy"}),
    "an unknown estimator": edited("estimator", to="Pickle"),
    "a strange estimator": edited("estimator", to=["EFA"]),
    "an unknown parameter": edited("parameters", "evil", to=1),
    "a parameter of another type": edited("parameters", "width", to="8"),
    "no parameters": edited("parameters", to=[]),
    "a bad training": edited("parameters", "training", to={"is": "training", "value": {"epochs": -1}}),
    "an unknown term": edited("terms", to=["item", "value", "os"]),
    "no terms": edited("terms", to=7),
    "another support": edited("support", to="none"),
    "other columns": edited("schema", "roles", "value", to=["a", "b"]),
    "other items": edited("schema", "vocabulary", "columns", to=["a"]),
    "no vocabulary": edited("schema", "vocabulary", to=None),
    "no roles": edited("schema", "roles", to={}),
    "another scale": edited("schema", "standardiser", "scale", to=[1.0, 2.0]),
    **{f"without {key}": without(key) for key in ("estimator", "parameters", "schema", "family", "terms", "history")},
    "a missing tensor": tensor("vectors.weight", lambda x: None),
    "another shape": tensor("vectors.weight", lambda x: x[:-1]),
    "another type": tensor("vectors.weight", lambda x: x.double()),
    "an extra tensor": lambda about, tensors: tensors.update({"model.extra": torch.zeros(2)}),
    "no tensors": lambda about, tensors: tensors.clear(),
    "names that overlap": tensor("0.offsets", lambda x: x * 0 + x[-1]),
    "names that run back": tensor("0.offsets", lambda x: x.flip(0)),
    "names out of bounds": tensor("0.offsets", lambda x: x + 2**40),
    "names that are no text": tensor("0.bytes", lambda x: x * 0 + 255),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_file_that_lies_about_itself_is_refused(tmp_path, honest, lie):
    about, tensors = copy.deepcopy(honest[0]), dict(honest[1])
    LIES[lie](about, tensors)
    kept = {key: x for key, x in about.items() if key not in ("format", "kind")}
    storage.write(tmp_path / "x.efattn", "model", kept, tensors)
    with pytest.raises(ModelFileError, match=r"x\.efattn") as told:
        efattn.load(tmp_path / "x.efattn")
    assert "\n" not in str(told.value)


def test_the_honest_file_loads(tmp_path, honest):
    kept = {key: x for key, x in honest[0].items() if key not in ("format", "kind")}
    storage.write(tmp_path / "x.efattn", "model", kept, honest[1])
    assert efattn.load(tmp_path / "x.efattn").score(RATINGS)


def test_a_flipped_byte_or_a_cut_is_always_found(tmp_path):
    path, draw = tmp_path / "x.efattn", np.random.default_rng(3)
    fitted("both")[0].save(path)
    data = path.read_bytes()
    for at in draw.integers(0, len(data), 300).tolist():
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << int(draw.integers(8)))]) + data[at + 1 :])
        with pytest.raises(ModelFileError):
            efattn.load(path)
        path.write_bytes(data[:at])
        with pytest.raises(ModelFileError):
            efattn.load(path)


# ---- files of this and of earlier releases


def test_a_linear_model_of_before_places_and_shifts_loads(tmp_path):
    """Its recipe had neither `spread` nor `plain`, and its tensors none of what these mean."""
    old = efattn.simple.LinearModel(spread=(0.0, 0.0), plain=True)
    roles = {**ITEMS, "value": "real", "order": "at", "attributes": ["size"]}
    model = efa(terms="value", context="past", companions=old).fit(RATINGS, **roles, validation=0.3)
    model.save(tmp_path / "new")
    about, tensors = storage.read(tmp_path / "new", "model")
    for name in [name for name in tensors if name.endswith(("dispersed", "bends"))]:
        del tensors[name]
    recipe = about["companions"]["real"][0]["recipe"]["settings"]
    assert {recipe.pop(name) is not None for name in ("spread", "plain")} == {True}
    storage.write(tmp_path / "old", "model", about, tensors)
    assert efattn.load(tmp_path / "old").score(RATINGS) == model.score(RATINGS)


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.efattn")), ids=lambda p: p.stem)
def test_the_files_of_every_release_load_and_predict_the_same(path):
    kept = json.loads(path.with_suffix(".json").read_text())
    table = pl.DataFrame(kept["table"])
    found = json.loads(json.dumps(answers(efattn.load(path), table)))
    assert_close(found["log_likelihood"], kept["answers"]["log_likelihood"])
    for verb in ("predict", "recommend", "first"):
        if verb in kept["answers"]:
            mine, theirs = found[verb], kept["answers"][verb]
            assert_close(*((without_ties(x) for x in (mine, theirs)) if "rank" in theirs else (mine, theirs)))
    assert found["score"]["mean_log_likelihood"] == pytest.approx(
        kept["answers"]["score"]["mean_log_likelihood"], rel=1e-4
    )


def test_there_are_reference_files():
    assert len(list(REFERENCE.glob("0.1.0-*.efattn"))) >= 3


def without_ties(answer):
    """Which of equally probable items comes first was left open once; it is the vocabulary that says so now."""
    rows = pl.DataFrame(answer)
    near = [(rows["probability"] - p).abs() < 1e-5 for p in rows["probability"]]
    group = rows["rank"].cum_count() - rows["rank"]
    alone = [int((one & (group == group[k])).sum()) == 1 for k, one in enumerate(near)]
    names = [name for name, dtype in rows.schema.items() if dtype == pl.String and name == "movie"]
    return {
        **answer,
        **{name: [x if kept else "tied" for x, kept in zip(answer[name], alone, strict=True)] for name in names},
    }


def assert_close(found, kept):
    for name, column in kept.items():
        if isinstance(column[0], str):
            assert found[name] == column, name
        else:
            mine, theirs = (np.array(x, dtype=float) for x in (found[name], column))
            np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4, err_msg=name)


def write_references():
    REFERENCE.mkdir(exist_ok=True)
    training = Training(epochs=8, rate=0.03, tokens=64, patience=None, device="cpu")
    for name, stem in (("both, past", "ratings"), ("lags", "weather"), ("latent both", "latent")):
        model, table = fitted(name, validation=None, training=training)
        path = REFERENCE / f"{efattn.__version__}-{stem}.efattn"
        if path.exists():
            raise SystemExit(f"{path} is there already: a reference is never written again.")
        model.save(path)
        kept = {"table": table.head(40).to_dict(as_series=False), "answers": answers(model, table.head(40))}
        path.with_suffix(".json").write_text(json.dumps(kept))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        sys.stdout.write(f"{path.name}  {path.stat().st_size} bytes  {digest[:12]}\n")


if __name__ == "__main__":
    write_references()
