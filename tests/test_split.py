"""No row is a target twice, none is predicted from what came later, and the same table gives the same parts."""

import numpy as np
import polars as pl
import pytest
from shell import forked
from small import efa, ratings

import efattn
from efattn import DataError

TABLE = ratings(users=14).with_columns(day=pl.int_range(pl.len()).shuffle(seed=1))
ROW = ["user", "movie"]
HOW = {
    "last": {"by": "last", "group": "user", "order": "at"},
    "two of each": {"by": "last", "group": "user", "order": "at", "test": 2, "validation": 1},
    "time": {"by": "time", "group": "user", "order": "day", "test": 0.2, "validation": 0.1},
    "groups": {"by": "groups", "group": "user", "test": 0.3, "validation": 0.2},
}


def targets(part):
    return part.filter("target").select(ROW)


@pytest.mark.parametrize("name", HOW)
def test_every_row_is_a_target_of_one_part_and_no_row_is_lost(name):
    parts = efattn.split(TABLE, **HOW[name])
    counted = pl.concat([targets(part) for part in parts])
    assert counted.sort(ROW).equals(TABLE.select(ROW).sort(ROW))
    for part in parts:
        assert part.drop("target").columns == TABLE.columns
        kept = TABLE.join(part.select(ROW), on=ROW, how="semi", maintain_order="left")
        assert part.drop("target").equals(kept)  # in the order of the table


@pytest.mark.parametrize("name", HOW)
def test_what_is_there_besides_the_targets_is_their_history_and_all_of_it(name):
    order = HOW[name].get("order", "at")
    for part in efattn.split(TABLE, **HOW[name])[1:]:
        for user, rows in part.group_by("user"):
            first = rows.filter("target")[order].min()
            assert first is not None
            assert (rows.filter(~pl.col("target"))[order] < first).all()
            if name != "groups":
                before = TABLE.filter((pl.col("user") == user[0]) & (pl.col(order) < first))
                assert (~rows["target"]).sum() == len(before)


def test_of_each_group_the_last_row_tests_and_the_one_before_validates():
    train, validation, test = efattn.split(TABLE, **HOW["last"])
    long = TABLE.filter(pl.len().over("user") > 2).sort("user", "at")
    for part, back in ((validation, 1), (test, 0)):
        wanted = long.group_by("user", maintain_order=True).agg(pl.col("movie").reverse().get(back))
        assert targets(part).sort("user").equals(wanted)
    short = TABLE.filter(pl.len().over("user") <= 2)
    assert len(short) > 0
    assert train.join(short, on=ROW, how="semi").height == len(short)


def test_one_moment_parts_all_groups():
    train, validation, test = efattn.split(TABLE, **HOW["time"])
    days = [part.filter("target")["day"] for part in (train, validation, test)]
    assert days[0].max() < days[1].min()
    assert days[1].max() < days[2].min()
    assert len(days[2]) == round(0.2 * len(TABLE))
    tied = efattn.split(TABLE.with_columns(day=pl.col("day") // 20), **HOW["time"])
    assert not set(tied.test.filter("target")["day"]) & set(tied.train["day"])


def test_groups_are_drawn_by_their_names_not_by_the_order_of_the_table():
    for seed in (0, 1):
        one, two = (efattn.split(t, **HOW["groups"], seed=seed) for t in (TABLE, TABLE.reverse()))
        for mine, theirs in zip(one, two, strict=True):
            assert set(mine["user"]) == set(theirs["user"])
    assert set(one.test["user"]) != set(efattn.split(TABLE, **HOW["groups"], seed=0).test["user"])


def test_nothing_validates_where_nothing_should():
    train, validation, test = efattn.split(TABLE, **HOW["last"], validation=0)
    assert validation is None
    assert len(train) + int(test["target"].sum()) == len(TABLE)


def test_frames_stay_of_their_kind_and_table_order_is_an_order():
    train, _, test = efattn.split(TABLE.to_pandas(), group=["user"], order="row")
    assert type(train).__module__.startswith("pandas")
    assert test.groupby("user")["target"].sum().eq(1).all()


def test_a_split_is_ready_for_fit_and_evaluate():
    train, validation, test = efattn.split(TABLE, **HOW["last"])
    roles = {"group": "user", "item": "movie", "order": "at"}
    plain = efa(context="past").fit(train, **roles)
    marked = efa(context="past").fit(train, **roles, target="target")
    for part in (validation, test):
        one, two = plain.evaluate(part), marked.evaluate(part)
        assert (one.about["rows"], two.about["rows"]) == ("last", "target")
        np.testing.assert_allclose(one.mean("ndcg", 5), two.mean("ndcg", 5))
    fitted = efa(context="past").fit(train, **roles, target="target", validation=validation)
    assert fitted.evaluate(test).about["predicted"] == int(test["target"].sum())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"by": "first", "group": "user"}, "one of last, time, groups"),
        ({"group": "user"}, "what came first"),
        ({"order": "at"}, "needs to know the groups"),
        ({"by": "groups", "group": "user", "test": 1}, "a share between 0 and 1"),
        ({"group": "user", "order": "at", "test": 0}, "a number of rows"),
        ({"group": "user", "order": "at", "validation": 0.5}, "a number of rows"),
        ({"by": "groups", "group": "user", "test": 0.9}, "Hold out fewer"),
        ({"by": "time", "order": "same"}, "Nothing is left"),
        ({"group": "user", "order": "at", "target": "movie"}, "a column 'movie' already"),
    ],
)
def test_what_cannot_be_is_refused(how, words):
    with pytest.raises(DataError, match=words):
        efattn.split(TABLE.with_columns(same=1), **how)
    with pytest.raises(DataError, match="no rows"):
        efattn.split(TABLE[:0], group="user", order="at")


@pytest.mark.parametrize("name", HOW)
def test_the_shell_writes_the_same_parts(name, tmp_path):
    TABLE.write_parquet(tmp_path / "t.parquet")
    words = [word for key, x in HOW[name].items() for word in (f"--{key}", x)]
    done = forked("split", "t.parquet", *words, "-o", "my.parts.parquet", "--json", cwd=tmp_path).good()
    for part, frame in efattn.split(TABLE, **HOW[name])._asdict().items():
        path = f"my.parts-{part}.parquet"
        assert pl.read_parquet(tmp_path / path).equals(frame)
        assert done.json()[part] == {"file": path, "rows": len(frame), "targets": int(frame["target"].sum())}
    again = forked("split", "t.parquet", *words, "-o", "my.parts.parquet", cwd=tmp_path)
    assert again.code == 2
    assert "--force" in again.err


def test_last_out_is_a_word_for_by_last(tmp_path):
    TABLE.write_parquet(tmp_path / "t.parquet")
    words = ["split", "t.parquet", "--group", "user", "--order", "at", "--last-out"]
    forked(*words, "-o", "p.parquet", cwd=tmp_path).good()
    assert pl.read_parquet(tmp_path / "p-test.parquet").equals(efattn.split(TABLE, group="user", order="at").test)
    assert "leave it out, or --by time" in forked(*words, "--by", "time", "-o", "q.parquet", cwd=tmp_path).err


@pytest.mark.parametrize("name", ["last", "two of each", "time"])
def test_history_in_a_validation_table_is_no_target_though_nobody_says_so(name):
    train, validation, _ = efattn.split(TABLE, **HOW[name])
    roles = {"group": "user", "item": "movie", "value": "real", "order": HOW[name]["order"], "terms": "item"}
    seen, told = [], {}
    for target in ({}, {"target": "target"}):
        model = efa(context="past", terms=roles["terms"])
        rest = {key: x for key, x in roles.items() if key != "terms"} | target
        model.fit(train, **rest, validation=validation, planned=seen.append, progress=False)
        told[len(target)] = [note for note in model.notes_ if note.kind == "history"]
    for held in (seen[0].held, seen[1].held):
        assert held.target.sum() == validation["target"].sum()
    assert (seen[0].held.target == seen[1].held.target).all()
    assert f"{(~validation['target']).sum()} are in the table that is fitted to" in str(told[0][0])
    assert not told[1]


def test_other_groups_of_the_same_names_are_no_history():
    train, other = ratings(seed=0, users=30), ratings(seed=1, users=30)
    seen = []
    for part in (other, train):  # the same table as a whole: nothing would be left to choose by
        efa(context="past", terms="item").fit(
            train, group="user", item="movie", order="at", validation=part, planned=seen.append, progress=False
        )
    assert all(one.held.target is None or one.held.target.all() for one in seen)
