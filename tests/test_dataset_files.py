"""The files of a data set are found in one order, checked, and fetched once."""

import contextlib
import dataclasses
import gzip
import hashlib
import http.server
import io
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

from efattn import DataError, datasets
from efattn.datasets import groceries, movielens, origins

BY_NAME = {d.name: d for d in datasets.DATASETS}


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


SMALL = {"u.data": b"1\t2\t3\t4\n", "u.item": "2|Misérables, Les (1995)|\n".encode("latin-1")}
TOY = dataclasses.replace(movielens.ORIGIN, name="toy", files={f: md5(c) for f, c in SMALL.items()}, archive=None)


def put(folder, files=SMALL, name="toy"):
    (folder / name).mkdir(parents=True)
    for file, content in files.items():
        (folder / name / file).write_bytes(content)
    return folder / name


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
