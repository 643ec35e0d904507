"""Data sets are found in one order, checked, and have the sizes their docstrings say."""

import functools
import gzip
import hashlib
import os
import re
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from efattn import EFA, Training, datasets, families
from efattn.datasets import origins, synthetic, weather

OWN = os.environ.get("EFATTN_DATA")
BY_NAME = {d.name: d for d in datasets.DATASETS}
COLUMNS = {
    "synthetic": ["user", "movie", "rating", "position", "mean"],
    "movielens-100k": ["user", "movie", "title", "rating", "timestamp"],
    "movielens-sequences": ["user", "movie", "title", "rating", "timestamp"],
    "movielens-ratings": ["user", "movie", "title", "rating", "timestamp"],
    "instacart": ["basket", "item", "product", "rank"],
    "us-cities": ["date", "state", "city", "latitude", "longitude", "temperature"],
    "noaa-october": ["station", "latitude", "longitude", "date", "tmax", "tmin", "tmean"],
    "amazon-beauty": ["user", "item", "position"],
    "house-votes": ["member", "party", "bill", "vote"],
    "grunfeld": ["year", "firm", "inv", "value", "capital"],
    "epil": ["subject", "period", "y", "trt", "treated", "base", "age", "lbase", "lage"],
    "airquality": ["day", "Month", "what", "x"],
    "county-murders": ["countyid", "year", "murders", "popul", "percblack"],
}
ROWS = {
    "synthetic": 50_000,
    "movielens-100k": 100_000,
    "movielens-sequences": 13_757,
    "movielens-ratings": 12_465,
    "instacart": 275_345,
    "us-cities": 20_774,
    "noaa-october": 14_960,
    "amazon-beauty": 198_502,
    "house-votes": 5_248,
    "grunfeld": 150,
    "epil": 176,
    "airquality": 452,
    "county-murders": 29_580,
}
NULLS = {"us-cities": {"temperature": 11}, "house-votes": {"vote": 287}, "airquality": {"x": 39}}
# what tells one row from another
KEYS = {
    "synthetic": ["user", "movie"],
    "movielens-100k": ["user", "movie"],
    "movielens-sequences": ["user", "timestamp"],
    "movielens-ratings": ["user", "timestamp"],
    "instacart": ["basket", "item"],
    "us-cities": ["date", "city", "state"],
    "noaa-october": ["date", "station"],
    "amazon-beauty": ["user", "item"],
    "house-votes": ["member", "bill"],
    "grunfeld": ["year", "firm"],
    "epil": ["subject", "period"],
    "airquality": ["day", "what"],
    "county-murders": ["countyid", "year"],
}

STRANGERS = [
    ("house-votes", 1_584, "member"),
    ("grunfeld", 50, "year"),
    ("epil", 60, "subject"),
    ("airquality", 160, "day"),
    ("county-murders", 7_769, "countyid"),
]


def need(name):
    if not BY_NAME[name].here:
        pytest.skip(
            f"{name} is not on this machine (EFATTN_DATA={OWN or ''}); its licence forbids a copy in the repository"
        )


@functools.cache
def loaded(name):
    return BY_NAME[name].load()


# ---------------------------------------------------------------------------------------------------- what is loaded


@pytest.mark.parametrize("name", BY_NAME)
def test_a_set_has_the_columns_and_rows_it_promises(name):
    need(name)
    frame = loaded(name)
    assert frame.columns == COLUMNS[name]
    assert len(frame) == ROWS[name]
    assert not frame.select(KEYS[name]).is_duplicated().any()
    nulls = frame.null_count().row(0, named=True)
    assert nulls == dict.fromkeys(frame.columns, 0) | NULLS.get(name, {})


@pytest.mark.parametrize("name", BY_NAME)
def test_the_docstring_shows_the_columns_their_types_and_the_first_rows(name):
    need(name)
    doc, frame = BY_NAME[name].load.__doc__, loaded(name)
    for word in ("Size:",) if name in ("movielens-sequences", "movielens-ratings") else ("Size:", "Source:"):
        assert word in doc
    if "Source:" in doc:
        for column, kind in frame.schema.items():
            assert re.search(rf"^ +{column} +{kind}\b", doc, re.MULTILINE), column
    lines = [re.split(r"\s{2,}", line.strip()) for line in doc.splitlines()]
    start = lines.index(frame.columns)
    for shown, row in zip(lines[start + 1 : start + 4], frame.head(3).rows(), strict=True):
        for text, value in zip(shown, row, strict=True):
            if isinstance(value, float):
                assert float(text) == pytest.approx(value, abs=5e-7)
            else:
                assert str(value).startswith(text.removesuffix("...")), (text, value)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.filterwarnings("ignore")
def test_the_example_in_the_docstring_fits(name):
    need(name)
    data = BY_NAME[name]
    code = re.search(r"^ +(EFA\(.*?)(\n\s*\n|\Z)", data.load.__doc__, re.DOTALL | re.MULTILINE).group(1)
    names = {
        "EFA": functools.partial(EFA, width=8, layers=1, training=Training(epochs=1), companions=None, refit=False),
        "families": families,
        data.load.__name__: lambda *options: data.load(*options).head(600),
    }
    assert eval(code.strip(), names).score(data.load().head(600)) < 0


@pytest.mark.parametrize("seed", [0, 1, 7])
@pytest.mark.parametrize(
    ("name", "users", "sparsity"), [("movielens-sequences", 902, 69.50), ("movielens-ratings", 893, 72.08)]
)
def test_the_filtered_ratings_have_the_papers_counts_whatever_the_draw(name, users, sparsity, seed):
    need(name)
    frame = BY_NAME[name].load(seed)
    assert frame["user"].n_unique() == users
    assert frame["movie"].n_unique() == 50
    assert round(100 * (1 - len(frame) / users / 50), 2) == sparsity
    assert frame.equals(frame.sort("user", "timestamp"))


def test_a_seed_gives_the_same_movies_again_and_another_seed_others():
    need("movielens-sequences")
    assert datasets.movielens_sequences(3).equals(datasets.movielens_sequences(3))
    assert not datasets.movielens_sequences(3).equals(datasets.movielens_sequences(4))


def test_filtering_keeps_rows_of_the_whole_and_shifts_ratings_by_two():
    need("movielens-ratings")
    whole = loaded("movielens-100k")
    assert len(loaded("movielens-sequences").join(whole, on=whole.columns, how="anti")) == 0
    ratings = loaded("movielens-ratings")
    assert sorted(ratings["rating"].unique()) == [1, 2, 3]
    assert ratings.group_by("user").len()["len"].min() == 2
    assert len(ratings.with_columns(pl.col("rating") + 2).join(whole, on=whole.columns, how="anti")) == 0


def test_movielens_titles_keep_their_accents():
    need("movielens-100k")
    whole = loaded("movielens-100k")
    assert (whole["user"].n_unique(), whole["movie"].n_unique()) == (943, 1682)
    assert whole.filter(pl.col("movie") == 543)["title"].unique().to_list() == ["Misérables, Les (1995)"]
    assert whole.select("movie", "title").unique().group_by("title").len().filter(pl.col("len") > 1).height == 18


def test_instacart_parts_are_disjoint_and_make_the_whole():
    need("instacart")
    train, test, whole = loaded("instacart"), datasets.instacart("test"), datasets.instacart("all")
    assert (train["basket"].n_unique(), test["basket"].n_unique(), len(test)) == (24_781, 1_433, 16_066)
    assert not set(train["basket"]) & set(test["basket"])
    assert whole.filter(part="train").drop("part").equals(train)
    assert whole.filter(part="test").drop("part").equals(test)
    assert sorted(train["item"].unique()) == list(range(1, 64))
    assert train["product"].n_unique() == train.select("item", "product").unique().height == 63
    order = train.group_by("basket").agg(pl.len(), ranks=pl.col("rank"))
    assert order["len"].is_between(10, 24).all()
    assert (order["ranks"] == order.select(pl.int_ranges(1, pl.col("len") + 1))["literal"]).all()


def test_reviews_of_a_user_are_numbered_and_every_product_has_a_category():
    need("amazon-beauty")
    reviews, categories = loaded("amazon-beauty"), datasets.amazon_beauty_categories()
    assert (reviews["user"].n_unique(), reviews["item"].n_unique()) == (22_363, 12_101)
    order = reviews.group_by("user").agg(pl.len(), positions=pl.col("position"))
    assert (order["len"].min(), order["len"].max()) == (5, 204)
    assert (order["positions"] == order.select(pl.int_ranges(1, pl.col("len") + 1))["literal"]).all()
    assert (len(categories), categories["category"].n_unique()) == (45_037, 637)
    assert set(categories["item"]) == set(reviews["item"])


@pytest.mark.parametrize(("name", "test", "group"), STRANGERS)
def test_parts_of_strangers_share_no_group_and_make_the_whole(name, test, group):
    need(name)
    train, held, whole = (datasets.strangers(name, part) for part in ("train", "test", "all"))
    assert train.equals(loaded(name))
    assert len(held) == test
    assert not set(train[group]) & set(held[group])
    assert whole.filter(part="train").drop("part").equals(train)
    assert whole.filter(part="test").drop("part").equals(held)


def test_the_papers_44_cities_are_complete():
    need("us-cities")
    paper = datasets.us_cities("paper")
    assert len(paper) == 44 * 442 == paper.drop_nulls().height
    assert paper["state"].n_unique() == paper.select("city", "state").unique().height == 44
    assert not {"Arizona", "Connecticut", "South Dakota", "Delaware"} & set(paper["state"])
    whole = loaded("us-cities")
    assert set(whole.filter(pl.col("temperature").is_null())["state"]) == {"Arizona", "Connecticut", "South Dakota"}
    assert whole["temperature"].min() > -99
    assert whole["state"].n_unique() == 47
    assert days(whole) == {(year, d) for year in range(2007, 2020) for d in range(34)}


def days(frame):
    """(year, days after September 28)"""
    return {(d.year, (d - date(d.year, 9, 28)).days) for d in frame["date"].unique()}


def test_the_bundled_stations_are_complete():
    frame = loaded("noaa-october")
    assert frame["station"].n_unique() == frame.select("station", "latitude", "longitude").unique().height == 110
    assert days(frame) == {(year, d) for year in range(1990, 1994) for d in range(34)}
    assert ((frame["tmax"] + frame["tmin"]) / 2 == frame["tmean"]).all()


def test_the_bundled_file_is_the_original_and_small():
    path = origins.BUNDLED / "noaa-october" / "temperature.csv.gz"
    assert path.stat().st_size < 400 * 1024
    content = gzip.decompress(path.read_bytes())
    assert hashlib.md5(content, usedforsecurity=False).hexdigest() == weather.NOAA.files["temperature.csv"]
    original = Path(OWN or "", "noaa-october", "temperature.csv")
    if OWN and original.is_file():
        assert content == original.read_bytes()


def test_the_bundled_set_needs_no_folder_and_no_network(nowhere):
    assert datasets.noaa_october().equals(loaded("noaa-october"))
    assert BY_NAME["noaa-october"].where == "bundled with efattn"


def test_the_synthetic_frame_is_the_papers_draw():
    frame, drawn = loaded("synthetic"), synthetic.ratings()
    test = frame.filter(pl.col("user") > 7_500)
    assert round(((test["rating"] - test["mean"]) ** 2).mean(), 4) == 1.0226 == round(drawn[-2500:].floor, 4)
    assert (frame["rating"].to_numpy().reshape(-1, 5) == drawn.rating).all()
    assert (frame["position"].to_numpy().reshape(-1, 5) == [1, 2, 3, 4, 5]).all()
    assert datasets.synthetic_ratings(20).equals(frame.head(100))
    assert not datasets.synthetic_ratings(20, seed=1).equals(frame.head(100))
