"""Which items may be given changes which are, never how probable they are."""

import polars as pl
import pytest
from shell import forked
from small import efa, ratings, weather

from efattn import DataError

TABLE = ratings(users=6)
MODEL = efa(context="past", support="all").fit(TABLE, group="user", item="movie", order="at")
EVERY = MODEL.recommend(TABLE, 8)


@pytest.mark.parametrize(
    ("how", "kept"),
    [
        ({"among": ["m1", "m3"]}, pl.col("movie").is_in(["m1", "m3"])),
        ({"among": "m1"}, pl.col("movie") == "m1"),
        ({"among": TABLE.filter(pl.col("movie") > "m4")}, pl.col("movie") > "m4"),
        ({"among": TABLE.filter(pl.col("movie") > "m4").lazy()}, pl.col("movie") > "m4"),
        ({"among": pl.Series(["m1", "m5"]).to_numpy()}, pl.col("movie").is_in(["m1", "m5"])),
        ({"exclude": ["m1", "never seen"]}, pl.col("movie") != "m1"),
        ({"among": ["m1", "m3"], "exclude": ["m3"]}, pl.col("movie") == "m1"),
        ({"at_least": 0.14}, pl.col("probability") >= 0.14),
        ({"exclude": []}, pl.lit(True)),
    ],
)
def test_what_may_not_be_given_is_left_out_of_the_same_list(how, kept):
    mine, wanted = MODEL.recommend(TABLE, 8, **how), EVERY.filter(kept)
    assert mine.select("user", "movie", "probability").equals(wanted.select("user", "movie", "probability"))
    for _, rows in mine.group_by("user"):
        assert sorted(rows["rank"].to_list()) == list(range(1, len(rows) + 1))


def test_a_list_is_as_long_as_asked_for_of_what_is_allowed():
    mine = MODEL.recommend(TABLE, 2, exclude=["m0", "m1", "m2"])
    assert mine["user"].value_counts()["count"].to_list() == [2] * 6
    first = MODEL.recommend(k=3, among=["m2", "m4", "m5", "m6"])
    assert set(first["movie"]) < {"m2", "m4", "m5", "m6"}
    assert len(first) == 3


def test_items_of_several_columns_are_named_by_tuples():
    table = weather().with_columns(state=pl.lit("S"))
    roles = {"group": "day", "item": ["station", "state"], "order": "row"}
    model = efa(context="past", support="all").fit(table, **roles)
    for among in ([(1, "S"), (2, "S")], table.filter(pl.col("station").is_in([1, 2]))):
        assert set(model.recommend(table, 5, among=among)["station"]) == {1, 2}
    assert set(model.recommend(table, 5, among=(3, "S"))["station"]) == {3}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"among": ["nothing"]}, "None of the items in among"),
        ({"among": []}, "None of the items in among"),
        ({"at_least": 2}, "a probability from 0 to 1"),
        ({"at_least": "much"}, "a probability from 0 to 1"),
    ],
)
@pytest.mark.filterwarnings("ignore:among")
def test_what_cannot_be_is_refused(how, words):
    with pytest.raises(DataError, match=words):
        MODEL.recommend(TABLE, **how)


def test_an_allowed_item_that_is_not_known_is_told():
    with pytest.warns(match="1 item of 2 not known"):
        MODEL.recommend(TABLE, among=["m1", "other"])


def test_python_and_the_shell_allow_the_same(tmp_path):
    TABLE.write_parquet(tmp_path / "t.parquet")
    MODEL.save(tmp_path / "m.efattn")
    pl.DataFrame({"movie": ["m1", "m2", None], "price": [1, 2, 3]}).write_csv(tmp_path / "stock.csv")
    for words, how in (
        (("--among", "stock.csv", "--among", "m5"), {"among": ["m1", "m2", "m5"]}),
        (("--exclude", "m1", "--exclude", "m2"), {"exclude": ["m1", "m2"]}),
        (("--at-least", "0.1"), {"at_least": 0.1}),
    ):
        forked("recommend", "m.efattn", "t.parquet", *words, "-o", "out.parquet", "-f", cwd=tmp_path).good()
        assert pl.read_parquet(tmp_path / "out.parquet").equals(MODEL.recommend(TABLE, **how))
    wrong = forked("recommend", "m.efattn", "t.parquet", "--among", "x", cwd=tmp_path)
    assert wrong.code == 2
    assert "--among" in wrong.err
