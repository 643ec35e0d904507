"""One page about a model and a table: it needs nothing else, obeys no name in a table, and says what Python says."""

import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import QUICK, efa, latent, ratings, weather

import efattn
from efattn import DataError, SimpleModel, simple
from efattn.data import Table
from efattn.reporting import card
from efattn.reporting.look import Look, drawn

EVIL = '<script>alert("x")</script>'
NAMES = {f"m{k}": name for k, name in enumerate([EVIL, '"><img src=x onerror=y>', "$x_1$ & <b>", "日本 ]]>", "-->"])}
RATINGS = ratings().with_columns(pl.col("movie").replace(NAMES), pl.col("user") + "<i>").rename({"rating": "a <u> & b"})
ROLES = {"group": "user", "item": "movie", "value": "a <u> & b"}
WEATHER = weather()
PLACED = {"group": "day", "item": "station", "value": "tmax", "attributes": ["latitude", "longitude"]}
WHEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC")


class Read(HTMLParser):
    """Tags, identifiers, addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.addresses, self.text = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture
def sketched(monkeypatch):
    """Pictures that are composed and never drawn, which takes longest."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda self, file, **how: file.write(b"<svg ></svg>"))
    monkeypatch.setattr("efattn.plots.items.write_names", lambda *unused: None)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A model of items and values of hostile names, with companions and members, its page, and its folder."""
    folder = tmp_path_factory.mktemp("report")
    model = efa(companions=[simple.ItemMean(), simple.Popularity()], ensemble=2).fit(RATINGS, **ROLES)
    model.save(folder / "m.efattn")
    RATINGS.write_parquet(folder / "t.parquet")
    model.report(RATINGS, folder / "page.html", title=f"About {EVIL}")
    return model, folder, (folder / "page.html").read_text()


def test_a_page_obeys_no_name(hostile):
    _, _, page = hostile
    read = Read(page)
    assert not {"script", "img", "b", "i", "u", "iframe", "object", "link"} & set(read.tags)
    assert EVIL in "".join(read.text)  # as a name, whole
    assert "default-src 'none'" in page  # nor would a browser run anything


def test_a_page_needs_nothing_else(hostile):
    read = Read(hostile[2])
    assert read.addresses
    assert all(one.startswith(("#", "data:")) for one in read.addresses)
    assert len(read.ids) == len(set(read.ids))
    assert {one[1:] for one in read.addresses if one.startswith("#")} <= set(read.ids)
    assert not re.search(r"url\((?!#)|@import", hostile[2])


def test_a_page_has_every_section(hostile):
    titles = re.findall(r"<h2>(.*?)</h2>", hostile[2])
    assert titles == [
        "Data", "Model", "Fit", "Beside simple models", "Shares of the mixture", "How far it can be trusted",
        "Best and worst", "What it looks at", "Items", "Notes",
    ]  # fmt: skip
    assert hostile[2].count("<svg") >= 7


def test_a_page_says_what_python_says(hostile):
    model, _, page = hostile
    text = "".join(Read(page).text)
    for name, mean in model.scores(RATINGS)["terms"].items():
        assert f"{mean:.4f}" in text, name
    for scores in model.fitted_.held_out.values():
        assert all(f"{x:.4f}" in text for x in scores.values())


def test_python_and_the_shell_write_the_same_page_of_a_model_from_a_file(hostile):
    model, folder, _ = hostile
    words = ("report", "m.efattn", "--title", EVIL, "-o", "shell.html")
    forked(*words, cwd=folder).good()
    model.report(path=folder / "python.html", title=EVIL)
    one, other = (WHEN.sub("", (folder / f"{name}.html").read_text()) for name in ("shell", "python"))
    assert one == other
    again = forked(*words, cwd=folder)
    assert again.code == 2
    assert "--force" in again.err


def test_python_and_the_shell_give_the_same_vectors(hostile):
    model, folder, _ = hostile
    forked("embeddings", "m.efattn", "-o", "items.parquet", cwd=folder).good()
    found = pl.read_parquet(folder / "items.parquet")
    assert found.equals(model.embeddings())
    assert found.columns[:3] == ["movie", "x", "y"]
    np.testing.assert_allclose(found.select("x", "y").to_numpy().mean(0), 0, atol=1e-9)
    assert float(found["x"].var()) >= float(found["y"].var())


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        (SimpleModel(simple.GaussianConditional()), {"What it looks at", "Fit"}),
        (efa(lags=1, terms="value"), set()),
    ],
    ids=["simple", "lags"],
)
def test_every_kind_of_model_has_a_page(model, missing, tmp_path, sketched):
    table = WEATHER.filter(pl.col("day") < 12).with_columns(
        tmax=pl.when(pl.int_range(pl.len()) % 9 == 4).then(None).otherwise("tmax")
    )
    lagged = {"time": "day"} if getattr(model, "lags", 0) else {}
    efattn.report(model.fit(table, **PLACED, **lagged), table, tmp_path / "r.html")
    titles = set(re.findall(r"<h2>(.*?)</h2>", (tmp_path / "r.html").read_text()))
    assert {"What it looks at", "Fit", "Where it errs", "What is missing", "Items"} - titles == missing


def test_a_page_of_the_model_alone_and_of_rows_without_values(tmp_path, sketched):
    model = latent().fit(WEATHER, **PLACED)
    model.report(path=tmp_path / "alone.html")
    assert "<h2>Data</h2>" not in (tmp_path / "alone.html").read_text()
    model.report(WEATHER.drop("tmax"), tmp_path / "no.html")
    assert "nothing observed to compare with" in (tmp_path / "no.html").read_text()
    model.report(WEATHER.with_columns(tmax=pl.lit(None, pl.Float64)), tmp_path / "no.html")
    with pytest.raises(DataError, match="nothing to look at"):
        model.report(WEATHER.head(0), tmp_path / "empty.html")
    with pytest.raises(DataError, match="cannot be written"):
        model.report(path=tmp_path / "none" / "no.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alone.html", "no.html"]


def test_a_wide_table_is_told_by_its_own_columns(tmp_path, sketched):
    draw = np.random.default_rng(0)
    columns = {"height": draw.normal(size=40), "visits": draw.poisson(3, 40), "town": draw.choice(["Bonn", "<b>"], 40)}
    table = pl.DataFrame(columns).with_columns(town=pl.when(pl.int_range(40) == 3).then(None).otherwise("town"))
    model = efa(training=QUICK).fit_wide(table)
    model.report(table, tmp_path / "w.html")
    page = (tmp_path / "w.html").read_text()
    assert "EFA of a wide table" in page
    assert "fitted to 40 rows of 3 columns" in page
    assert {"town", "height", "visits", "<b>"} <= set(Read(page).text) | {"<b>"}
    assert "row 3" in str(efattn.reporting.about.group_name(Look.at(model.fitted_, table, 99, 0), 3))
    assert "<b>" not in page


def test_a_large_table_is_looked_at_by_whole_groups_drawn_with_a_seed():
    model = SimpleModel(simple.Popularity()).fit(RATINGS, group="user", item="movie")
    one, same, other = (Look.at(model.fitted_, RATINGS, 30, seed) for seed in (1, 1, 2))
    assert one.table.native.equals(same.table.native)
    assert not one.table.native.equals(other.table.native)
    assert len(one.table) <= 30 < one.rows == len(RATINGS)
    whole = RATINGS.filter(pl.col("user").is_in(one.table.native["user"].unique().to_list()))
    assert one.table.native.equals(whole)
    assert "with seed 1" in str(efattn.reporting.about.data(one))


def test_with_lags_the_last_times_are_looked_at():
    model = efa(lags=1, terms="value").fit(WEATHER, **PLACED, time="day")
    groups = model.schema_.encode(Table.read(WEATHER))
    assert drawn(groups, 30, 0).tolist() == list(range(18, 24))


def test_a_fitted_model_is_a_card_in_a_notebook(hostile):
    shown = card(hostile[0].fitted_)
    assert hostile[0]._repr_mimebundle_()["text/html"] == hostile[0]._repr_html_() == shown
    assert "a &lt;u&gt; &amp; b" in shown
    assert "<u>" not in shown
    assert "sk-" in efa(training=QUICK)._repr_html_()  # not fitted: scikit-learn's


def test_scores_of_held_out_groups_are_kept_in_the_file(hostile):
    model, folder, _ = hostile
    kept = efattn.load(folder / "m.efattn").fitted_.held_out
    assert kept == model.fitted_.held_out
    assert set(kept) == {"item", "a <u> & b"}
    assert {"together", "network", "Popularity"} <= set(kept["item"])
    together = {name: scores["together"] for name, scores in kept.items()}
    assert all(together[name] >= max(scores.values()) - 0.05 for name, scores in kept.items())
