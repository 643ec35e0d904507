"""Data sets are found in one order, checked, and have the sizes their docstrings say."""

import contextlib
import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import os
import re
import subprocess
import sys
import threading
import zipfile
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from efattn import EFA, DataError, Training, datasets, families
from efattn.datasets import groceries, movielens, origins, synthetic, weather

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


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data but what is bundled, and an empty cache."""
    monkeypatch.delenv("EFATTN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


SMALL = {"u.data": b"1\t2\t3\t4\n", "u.item": "2|Misérables, Les (1995)|\n".encode("latin-1")}
TOY = dataclasses.replace(movielens.ORIGIN, name="toy", files={f: md5(c) for f, c in SMALL.items()}, archive=None)


def put(folder, files=SMALL, name="toy"):
    (folder / name).mkdir(parents=True)
    for file, content in files.items():
        (folder / name / file).write_bytes(content)
    return folder / name


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
    assert md5(content) == weather.NOAA.files["temperature.csv"]
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


# ---------------------------------------------------------------------------------------------------- where it is found


def test_the_users_folder_comes_before_the_cache_and_the_cache_before_the_package(nowhere, monkeypatch):
    own, cached, bundled = nowhere / "own", nowhere / "cache" / "efattn", nowhere / "package"
    monkeypatch.setattr(origins, "BUNDLED", bundled)
    assert TOY.folder() is None
    for folder in (bundled, cached, own):  # each hides the one before
        monkeypatch.setenv("EFATTN_DATA", str(own))
        assert TOY.folder() != folder / "toy"
        assert TOY.folder() is None or TOY.folder().is_relative_to(nowhere)
        put(folder)
        assert TOY.folder() == folder / "toy"
        assert TOY.read() == SMALL


def test_a_folder_with_only_some_of_the_files_is_passed_over(nowhere, monkeypatch):
    monkeypatch.setenv("EFATTN_DATA", str(nowhere / "own"))
    put(nowhere / "own", {"u.data": b"of another version"})
    with pytest.raises(DataError, match=r"own/toy: no u\.item\n"):
        TOY.read()
    kept = put(nowhere / "cache" / "efattn")
    assert TOY.folder() == kept
    assert TOY.read() == SMALL


def test_without_xdg_the_cache_is_in_the_home_folder(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/somebody")
    assert origins.cache() == Path("/home/somebody/.cache/efattn")


def test_a_gzipped_file_is_as_good(nowhere):
    put(nowhere / "cache" / "efattn", {"u.data.gz": gzip.compress(SMALL["u.data"]), "u.item": SMALL["u.item"]})
    assert TOY.read() == SMALL


@pytest.mark.parametrize("name", [n for n, d in BY_NAME.items() if d.origin and n != "noaa-october"])
def test_a_missing_set_says_where_it_was_looked_for_and_what_to_do(name, nowhere):
    data = BY_NAME[name]
    with pytest.raises(DataError) as error:
        data.load(**({"download": False} if "movielens" in name else {}))
    message = str(error.value)
    for part in ("$EFATTN_DATA is not set", str(origins.cache()), *data.origin.files, data.licence, data.origin.advice):
        assert part in message
    assert not data.here
    assert data.origin.advice in data.where or str(data.origin.archive) in data.where
    assert not (nowhere / "cache").exists()


@pytest.mark.parametrize("name", BY_NAME)
def test_every_set_says_what_it_is(name):
    data = BY_NAME[name]
    assert all((data.what, data.source, data.licence, data.where))
    assert data.load.__name__ in datasets.__all__


def test_only_movielens_is_ever_fetched():
    fetched = {d.name for d in datasets.DATASETS if d.origin and d.origin.archive}
    assert fetched == {"movielens-100k", "movielens-sequences", "movielens-ratings"}
    assert movielens.ORIGIN.archive.startswith("https://files.grouplens.org/")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.instacart("validation"), "part must be 'train', 'test' or 'all', not 'validation'"),
        (lambda: datasets.strangers("epil", "half"), "part must be 'train', 'test' or 'all', not 'half'"),
        (lambda: datasets.strangers("nobody"), "name must be one of 'house-votes', .*, not 'nobody'"),
        (lambda: datasets.us_cities("44"), "cities must be 'all' or 'paper', not '44'"),
        (lambda: datasets.synthetic_ratings(0), "users must be at least 1, not 0"),
    ],
)
def test_a_wrong_option_is_answered_in_words(call, message):
    with pytest.raises(DataError, match=message):
        call()


# ---------------------------------------------------------------------------------------------------- what is checked


def test_an_edited_file_is_refused(nowhere):
    put(nowhere / "cache" / "efattn", SMALL | {"u.data": SMALL["u.data"] + b"\n"})
    with pytest.raises(DataError, match=r"u\.data' is not the file of GroupLens.*cut or edited.*get it again"):
        TOY.read()


def test_a_cut_gzip_file_is_refused(nowhere):
    put(nowhere / "cache" / "efattn", {"u.data.gz": gzip.compress(SMALL["u.data"])[:-9], "u.item": SMALL["u.item"]})
    with pytest.raises(DataError, match=r"u\.data\.gz' cannot be read"):
        TOY.read()


def test_a_set_made_anew_by_its_rule_is_used_with_a_warning(nowhere):
    files = {
        "baskets_train.csv": b"order_id,product_id,rank\n7,2,2\n7,1,1\n",
        "baskets_test.csv": b"order_id,product_id,rank\n8,2,1\n",
        "products.csv": b"item,product_id,product_name\r\n1,10,Pear\r\n2,20,Plum\r\n",
    }
    put(nowhere / "cache" / "efattn", files, "instacart")
    with pytest.warns(UserWarning, match="not the file the documented numbers come from"):
        frame = datasets.instacart("all")
    assert frame.rows() == [(7, 1, "Pear", 1, "train"), (7, 2, "Plum", 2, "train"), (8, 2, "Plum", 1, "test")]


@pytest.mark.filterwarnings("ignore:.*documented numbers")
def test_a_set_made_anew_with_other_columns_is_refused(nowhere):
    put(nowhere / "cache" / "efattn", dict.fromkeys(groceries.ORIGIN.files, b"a,b\n1,2\n"), "instacart")
    with pytest.raises(DataError, match=r"products\.csv should be a CSV file with the columns item and product_name"):
        datasets.instacart()


# ---------------------------------------------------------------------------------------------------- what is fetched


def packed(files, inside="ml-100k/"):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(inside + name, content)
    return out.getvalue()


@contextlib.contextmanager
def served(content):
    """An address that answers with the content (None: not found), and the list of what was asked for."""
    asked = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/ml-100k.zip", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_set_is_fetched_once_and_then_read_from_the_cache(nowhere, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(packed(SMALL)) as (address, asked):
        monkeypatch.setattr(movielens, "ORIGIN", dataclasses.replace(TOY, archive=address))
        first, again = datasets.movielens_100k(), datasets.movielens_100k()
    assert asked == ["/ml-100k.zip"]
    assert first.rows() == again.rows() == [(1, 2, "Misérables, Les (1995)", 3, 4)]
    assert sorted(p.name for p in (nowhere / "cache" / "efattn" / "toy").iterdir()) == ["u.data", "u.item"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "failed: Not Found"),
        (b"<html>Sign in to the network</html>", "failed: File is not a zip file"),
        (packed(SMALL)[:-40], "failed: File is not a zip file"),
        (packed({"u.data": SMALL["u.data"]}), r"failed: .*u\.item"),
        (
            packed(SMALL | {"u.item": b"2|Other|\n"}),
            r"'u\.item' in .* is not the file that was expected.*Nothing was kept",
        ),
    ],
    ids=["not found", "a page", "cut", "a file lacks", "another version"],
)
def test_a_bad_download_is_told_and_leaves_nothing_behind(content, message, nowhere, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(content) as (address, _), pytest.raises(DataError, match=message):
        dataclasses.replace(TOY, archive=address).read()
    assert not (nowhere / "cache").exists()


def test_without_a_network_the_message_still_says_what_to_do(nowhere, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(b"") as (address, _):
        pass  # nobody listens there any more
    with pytest.raises(DataError, match=r"(?s)Unpack https://files\.grouplens\.org.*failed: .*refused"):
        dataclasses.replace(TOY, archive=address).read()


def test_a_cache_that_cannot_be_written_is_told(nowhere, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (nowhere / "cache").write_text("a file where the folder should be")
    with served(packed(SMALL)) as (address, _), pytest.raises(DataError, match=r"cannot be written.*XDG_CACHE_HOME"):
        dataclasses.replace(TOY, archive=address).read()


def test_importing_the_package_loads_neither_polars_nor_torch():
    code = (
        "import sys, efattn.datasets as d; d.DATASETS[-1].where; sys.exit(bool({'polars', 'torch'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
