"""A model file that was edited and sealed again is refused, or is a model that can be asked anything.

python tests/test_hostile_files.py 1000 2000      runs these seeds and prints what broke
"""

import json
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small import efa, latent, ratings, weather
from test_storage import edited

import efattn
from efattn import ModelFileError, SimpleModel, families, simple
from efattn.errors import EfattnError, EfattnWarning

RATINGS, WEATHER = ratings(users=8), weather(days=8)
ITEMS = {"group": "user", "item": "movie"}
PLACES = {"group": "day", "attributes": ["latitude", "longitude"]}
WORDS = RATINGS.with_columns(
    kind=pl.when(pl.col("liked") == 1).then(pl.lit("good")).otherwise(pl.lit("bad")),
    grade=pl.col("rating").cast(pl.String).replace_strict({str(k): "abcde"[k - 1] for k in range(1, 6)}, default="c")
    .cast(pl.Enum(list("abcde"))),
    when=pl.date(2024, 1, 1) + pl.duration(days=pl.col("at") ** 2),
)  # fmt: skip
CASES = {
    "past": (efa(context="past", gaps=True), WORDS, {**ITEMS, "value": "rating", "order": "when"}),
    "ensemble": (efa(ensemble=2, companions=[simple.ShrunkMean(), simple.Popularity()]), RATINGS,
                 {**ITEMS, "value": "real", "missing": [-1, float("inf"), "n/a"]}),
    "lags": (efa(lags=2, terms="value"), WEATHER,
             {**PLACES, "item": "station", "value": ["tmax", "tmin"], "time": "day"}),
    "words": (efa(family={"real": "gaussian", "grade": families.Ordinal(5)}, max_length=3), WORDS,
              {"group": ["user", "liked"], "value": ["grade", "real"], "attributes": ["kind", "x"]}),
    "items": (latent(), RATINGS, {"group": "user", "item": ["movie", "liked"]}),
    "places": (latent(neighbours=2), WEATHER, {**PLACES, "value": "tmax"}),
    "simple": (SimpleModel(simple.GaussianConditional()), WEATHER,
               {"group": "day", "item": "station", "value": "tmax"}),
    "chain": (SimpleModel(simple.MarkovChain(), context="past"), RATINGS, {**ITEMS, "order": "at"}),
    "large": (efa(), RATINGS.with_columns(rating=pl.col("rating") + 10**12), {**ITEMS, "value": "rating"}),
    "counts": (efa(family="poisson", terms="value"), RATINGS, {**ITEMS, "value": "count", "exposure": "hours"}),
}  # fmt: skip
OTHERS = (
    None, True, False, 0, 1, -1, 2, 7, 10**9, 2**53, 10**30, -(10**30), 0.5, -0.5, 1e308, 5e-324, "", "x", "item",
    "value", "user", "past", "nan", "\x00", "a" * 1000, [], [1], ["x"], [None], {}, {"x": 1}, [[[[[]]]]],
    {"is": "tuple", "value": 1}, {"is": "family", "value": {"name": "poisson"}}, {"number": "x"},
)  # fmt: skip
QUICK, BLOCKS, BLOCK = 200, 14, 100


def places(node, path=()):
    """Every path in a JSON value, the leaves and what holds them."""
    yield path
    if isinstance(node, dict | list):
        for key in node if isinstance(node, dict) else range(len(node)):
            yield from places(node[key], (*path, key))


def change(draw):
    """One to three edits: another value, none, twice the same, or the value of another place."""

    def at(about, path):
        for key in path:
            about = about[key]
        return about

    def once(about):
        paths = [path for path in places(about) if path and path[0] not in ("format", "kind")]
        *path, key = paths[int(draw.integers(len(paths)))]
        holder, kind = at(about, path), draw.integers(8)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            holder[key] = json.loads(json.dumps(at(about, paths[int(draw.integers(len(paths)))])))
        elif kind == 2 and isinstance(holder, list):
            holder.append(holder[key])
        elif kind == 3 and isinstance(holder, dict):
            holder[str(OTHERS[int(draw.integers(len(OTHERS)))])] = holder.pop(key)
        elif kind == 4 and isinstance(holder[key], int | float):
            holder[key] = holder[key] * int(draw.choice([-1, 2, 1000])) + int(draw.choice([0, 1]))
        else:
            holder[key] = OTHERS[int(draw.integers(len(OTHERS)))]

    def several(about):
        for _ in range(int(draw.choice([1, 1, 2, 3]))):
            once(about)

    return several


def answers(path, table):
    """Whether it loads; then everything it is asked is answered or refused in words."""
    try:
        model = efattn.load(path)
    except ModelFileError as error:
        return not is_clear(error, path)
    for ask in (
        model.summary,
        lambda: model.score(table),
        lambda: model.log_likelihood(table),
        lambda: model.predict(table),
        lambda: model.recommend(table, k=2),
        lambda: model.recommend(k=2),
        lambda: model.embeddings(),
        lambda: repr(model),
        lambda: model.save(path),
        lambda: efattn.load(path),
    ):
        try:
            ask()
        except EfattnError as error:
            is_clear(error)
    return True


def is_clear(error, path=""):
    """One line that says something, and which file it is about."""
    text = str(error)
    assert str(path) in text
    assert len(text) > 20
    assert "\n" not in text or path == ""
    return True


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("honest"))


def saved(folder):
    """The models as files, and the tables to ask them about."""
    kept = {}
    for name, (model, table, roles) in CASES.items():
        path = folder / f"{name}.efattn"
        model.fit(table, **roles, validation=None, progress=False).save(path)
        kept[name] = (path.read_bytes(), table)
    return kept


def one(honest, path, seed):
    draw = np.random.default_rng(seed)
    data, table = honest[list(honest)[seed % len(honest)]]
    path.write_bytes(data)
    edited(path, change(draw))
    return answers(path, table)


def test_the_honest_files_load_and_answer(honest, tmp_path):
    for data, table in honest.values():
        (tmp_path / "x.efattn").write_bytes(data)
        assert answers(tmp_path / "x.efattn", table)


@pytest.mark.parametrize("first", range(0, QUICK, BLOCK))
def test_an_edited_file_is_refused_or_answers(honest, tmp_path, first):
    for seed in range(first, first + BLOCK):
        try:
            one(honest, tmp_path / "x.efattn", seed)
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + BLOCKS * BLOCK, BLOCK))
def test_thousands_of_edited_files_are_refused_or_answer(honest, tmp_path, first):
    test_an_edited_file_is_refused_or_answers(honest, tmp_path, first)


def main(first, last):
    loaded = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        honest = saved(folder)
        for seed in range(first, last):
            try:
                loaded += one(honest, folder / "x.efattn", seed)
            except Exception:
                where = traceback.format_exc().strip().splitlines()
                sys.stdout.write(f"---- {seed} {list(honest)[seed % len(honest)]}\n" + "\n".join(where[-7:]) + "\n")
    sys.stdout.write(f"{loaded} of {last - first} load\n")


if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", EfattnWarning)
    main(*map(int, sys.argv[1:]))
