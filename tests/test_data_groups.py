"""Groups, lags, pieces and batches equal what a plain loop over rows gives."""

import json
from collections import Counter, defaultdict
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from efattn import DataError
from efattn.data import Batch, Groups, Roles, Schema, group_folds
from efattn.data.batch import LAYOUT
from efattn.data.groups import Observations

ROLES = Roles("g", "i", ["y", "z"], "a", order="o", exposure="e", weight="w", target="t")


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list[Any]]:
    n = draw(st.integers(1, 30))

    def column(entry: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(entry, min_size=n, max_size=n))

    number = st.floats(-9, 9).map(lambda x: round(x, 2))
    table = {
        "g": column(st.integers(0, 6)),
        "i": column(st.sampled_from([*"abcdef", None])),
        "o": column(st.integers(0, 4)),
    }
    table |= {"y": column(st.none() | number), "z": column(number), "a": column(number)}
    return table | {"e": column(st.floats(0.5, 2)), "w": column(st.floats(0, 2)), "t": column(st.booleans())}


def encoded(table: dict[str, list[Any]], roles: Roles = ROLES, sort: bool = True, **options: Any) -> Groups:
    table = {**table, "y": [0.0, *table["y"][1:]], "i": ["a", *table["i"][1:]]}
    schema, groups = Schema.fit_encode(pl.DataFrame(table), roles, **options)
    return groups if sort else schema.encode(pl.DataFrame(table))


def looped(groups: Groups) -> list[dict[str, np.ndarray]]:
    """Each piece as `Batch.of` takes it."""
    every, found = groups.every, []
    for start, stop in zip(groups.pieces.start, groups.pieces.stop, strict=True):
        piece = {
            name: getattr(every, name)[start:stop]
            for name in ("item", "value", "attributes", "exposure", "weight", "target")
        }
        found.append(piece)
    return found


@settings(max_examples=80, deadline=None)
@given(tables())
def test_rows_are_sorted_by_group_and_order_and_ties_by_table(table: dict[str, list[Any]]) -> None:
    groups, named = encoded(table, sort=False), encoded(table)
    by: dict[int, list[int]] = defaultdict(list)
    for row, g in enumerate(table["g"]):
        by[g].append(row)
    wanted = {g: sorted(rows, key=lambda r: table["o"][r]) for g, rows in by.items()}
    assert groups.labels.tolist() == list(by)
    assert groups.rows.tolist() == [r for rows in wanted.values() for r in rows]
    assert named.labels.tolist() == sorted(by)
    assert named.rows.tolist() == [r for g in sorted(by) for r in wanted[g]]
    assert groups.lengths.tolist() == [len(rows) for rows in wanted.values()]
    pairs = [p for rows in wanted.values() for p in pairwise(rows)]
    assert groups.ties == sum(table["o"][a] == table["o"][b] for a, b in pairs)
    assert groups.label(0) == f"row {groups.rows[0]} (g {table['g'][0]})"


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(1, 40), st.none() | st.integers(1, 4), st.booleans())
def test_a_batch_is_what_a_loop_would_pad(
    table: dict[str, list[Any]], tokens: int, longest: int | None, shuffle: bool
) -> None:
    groups = encoded(table, max_length=longest)
    pieces = looped(groups)
    plan = groups.plan(tokens, shuffle=3 if shuffle else None)
    assert sorted(np.concatenate(plan).tolist()) == list(range(len(pieces)))
    for chosen in plan:
        batch, wanted = groups.batch(chosen), Batch.of([pieces[p] for p in chosen])
        assert len(chosen) == 1 or batch.exists.numel() <= tokens
        for name in ("exists", "target", "item", "value", "observed", "attributes", "position", "weight", "exposure"):
            one, two = getattr(batch, name), getattr(wanted, name)
            assert one.dtype == two.dtype, name
            torch.testing.assert_close(one, two, rtol=0, atol=0, msg=name)
        assert batch.lag is None
        assert batch.length == wanted.length


@settings(max_examples=60, deadline=None)
@given(tables(), st.integers(1, 4))
def test_cutting_keeps_each_row_once_and_tells_the_other_items(table: dict[str, list[Any]], longest: int) -> None:
    groups = encoded(table, max_length=longest)
    assert (groups.pieces.stop - groups.pieces.start).max() <= longest
    for context in ("past", "others"):
        seen: list[int] = []
        for batch in groups.batches(50, context=context):  # type: ignore[arg-type]
            assert batch.rows is not None
            assert batch.cut is not None
            for rows, cut in zip(batch.rows, batch.cut, strict=True):
                mine = rows[rows >= 0].tolist()
                seen += mine
                group = [r for r in groups.rows.tolist() if table["g"][r] == table["g"][mine[0]]]
                first, last = group.index(mine[0]), group.index(mine[-1])
                assert group[first : last + 1] == mine
                others = group[:first] + (group[last + 1 :] if context == "others" else [])
                assert groups.item is not None
                assert groups.vocabulary is not None
                item = dict(zip(groups.rows.tolist(), groups.item.tolist(), strict=True))
                wanted = [item[r] for r in others if item[r] != groups.vocabulary.unknown]
                assert cut[cut >= 0].tolist() == wanted
        assert sorted(seen) == list(range(len(table["g"])))


@st.composite
def series(draw: st.DrawFn) -> tuple[dict[str, list[Any]], int]:
    slots = draw(st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 9)), min_size=2, max_size=12, unique=True))
    rows = [(s, t, draw(st.integers(1, 3))) for s, t in slots]
    flat = [(s, t, k) for s, t, n in rows for k in range(n)]
    flat = draw(st.permutations(flat))
    columns = {"s": [s for s, _, _ in flat], "t": [t for _, t, _ in flat], "i": [k for _, _, k in flat]}
    return columns | {"y": [float(n) for n in range(len(flat))]}, draw(st.integers(1, 3))


@settings(max_examples=80, deadline=None)
@given(series(), st.sampled_from([1, 0.1, "day"]))
def test_a_lag_is_the_group_of_the_same_series_so_many_steps_earlier(
    drawn: tuple[dict[str, list[Any]], int], unit: Any
) -> None:
    table, lags = drawn
    gaps: Counter[int] = Counter()
    for s in set(table["s"]):
        times = sorted({t for s2, t in zip(table["s"], table["t"], strict=True) if s2 == s})
        gaps.update(b - a for a, b in pairwise(times))
    time = pl.Series("t", table["t"])
    scaled = time.cast(pl.Int32).cast(pl.Date) if unit == "day" else time * unit
    frame = pl.DataFrame(table).with_columns(scaled.alias("t"), time.alias("n"))
    roles = Roles(["s", "n"], "i", "y", order="row", time="t", series="s")
    if not gaps:
        with pytest.raises(DataError, match="two times"):
            Schema.fit(frame, roles, lags=lags)
        return
    step = min(g for g, n in gaps.items() if n == max(gaps.values()))
    groups = Schema.fit_encode(frame, roles, lags=lags)[1]
    rows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for r, key in enumerate(zip(table["s"], table["t"], strict=True)):
        rows[key].append(r)
    for batch in groups.batches(60, shuffle=0):
        assert batch.rows is not None
        assert batch.lag is not None
        assert batch.value is not None
        for b in range(len(batch.exists)):
            mine = batch.rows[b][batch.rows[b] >= 0].tolist()
            s, t = table["s"][mine[0]], table["t"][mine[0]]
            wanted = [(float(r), 0) for r in mine]
            wanted += [(float(r), d) for d in range(1, lags + 1) for r in rows.get((s, t - d * step), [])]
            there = batch.exists[b]
            assert list(zip(batch.value[b, there, 0].tolist(), batch.lag[b, there].tolist(), strict=True)) == wanted
            assert there[: batch.length].sum() == len(mine)


def many(groups: int = 40, seed: int = 0, **more: Any) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    g = np.repeat(np.arange(groups), rng.integers(1, 30, groups))
    return pl.DataFrame({"g": g, "i": rng.integers(0, 9, len(g)), "y": rng.normal(size=len(g)), **more})


def test_batches_are_the_same_for_the_same_seed_and_epoch_only() -> None:
    groups = Schema.fit_encode(many(), Roles("g", "i", "y"))[1]

    def plans(seed: int, epoch: int) -> list[list[int]]:
        return [p.tolist() for p in groups.plan(120, shuffle=seed, epoch=epoch)]

    assert plans(1, 2) == plans(1, 2)
    assert plans(1, 2) != plans(1, 3)
    assert plans(1, 2) != plans(2, 2)
    assert [p.tolist() for p in groups.plan(120)] == [p.tolist() for p in groups.plan(120)]


def test_batches_of_like_length_waste_little() -> None:
    groups = Schema.fit_encode(many(2000), Roles("g", "i", "y"))[1]
    for shuffle in (None, 0):
        cells = sum(b.exists.numel() for b in groups.batches(600, shuffle=shuffle))
        assert cells < 1.2 * groups.lengths.sum()
        assert len(groups.plan(600, shuffle=shuffle)) < 1.3 * cells / 600


def test_a_split_never_parts_a_group_and_loses_no_row() -> None:
    groups = Schema.fit_encode(many(), Roles("g", "i", "y"))[1]
    one, two = groups.split(0.25, seed=5)
    assert (len(one), len(two)) == (30, 10)
    assert sorted([*one.rows, *two.rows]) == list(range(len(groups.rows)))
    assert not set(one.numbers) & set(two.numbers)
    assert one.value is not None
    assert len(one.value) == len(one.rows) == one.lengths.sum() == len(one.group)
    again, other = groups.split(0.25, seed=5)[1], groups.split(0.25, seed=6)[1]
    assert two.rows.tolist() == again.rows.tolist() != other.rows.tolist()
    part = one.subset(np.array([2, 0])).subset(np.array([False, True]))
    assert part.rows.tolist() == one.rows[: one.lengths[0]].tolist()
    with pytest.raises(DataError, match="cannot be split"):
        part.split(0.5)


def test_a_part_labels_and_batches_its_own_rows() -> None:
    frame = many()
    part = Schema.fit_encode(frame, Roles("g", "i", "y"), max_length=7)[1].split(0.3, seed=1)[1]
    found = torch.cat([b.rows[b.exists[:, : b.length]] for b in part.batches(100) if b.rows is not None])
    assert sorted(found.tolist()) == sorted(part.rows.tolist())
    for i, row in enumerate(part.rows):
        assert part.label(i) == f"row {row} (g {frame['g'][int(row)]})"


def test_with_lags_the_last_times_are_held_out_and_still_see_their_lags() -> None:
    day = np.repeat(np.arange(20), 3)
    frame = pl.DataFrame({"day": day, "i": np.tile([1, 2, 3], 20), "y": day * 1.0})
    groups = Schema.fit_encode(frame, Roles("day", "i", "y", time="day"), lags=1)[1]
    one, two = groups.split(0.25)
    assert [len(one), len(two)] == [15, 5]
    assert two.labels.take(two.numbers).tolist() == [15, 16, 17, 18, 19]
    (batch,) = two.batches(1000)
    assert batch.value is not None
    assert (batch.value[:, batch.length :, 0] == batch.value[:, : batch.length, 0] - 1).all()


def test_folds_never_part_a_group() -> None:
    frame = many(23)
    folds = group_folds(frame, "g", folds=4)
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(len(frame)))
    for train, test in folds:
        assert sorted([*train, *test]) == list(range(len(frame)))
        assert not set(frame["g"].to_numpy()[train]) & set(frame["g"].to_numpy()[test])
    groups = Schema.fit_encode(frame, Roles("g", "i", "y"))[1]
    for (_, one), (_, two) in zip(folds, group_folds(groups, folds=4), strict=True):
        np.testing.assert_array_equal(one, two)
    for bad in ({"folds": 24}, {"group": None}, {"group": "G"}):
        with pytest.raises(DataError):
            group_folds(frame, **{"group": "g", **bad})  # type: ignore[arg-type]


def test_folds_do_not_depend_on_the_order_of_the_table() -> None:
    frame = many(23).with_row_index("row")
    other = frame.sample(fraction=1.0, shuffle=True, seed=1)
    for (_, one), (_, two) in zip(group_folds(frame, "g", 4), group_folds(other, "g", 4), strict=True):
        assert set(frame["row"].to_numpy()[one]) == set(other["row"].to_numpy()[two])


def test_folds_serve_scikit_learn() -> None:
    model_selection = pytest.importorskip("sklearn.model_selection")
    dummy = pytest.importorskip("sklearn.dummy")
    frame = many()
    scores = model_selection.cross_val_score(
        dummy.DummyRegressor(), frame[["i"]].to_numpy(), frame["y"].to_numpy(), cv=group_folds(frame, "g")
    )
    assert len(scores) == 5


def test_a_schema_survives_its_file() -> None:
    frame = many(name=None).with_columns(name=pl.format("é {}", "i"), t=pl.col("g").cast(pl.Int32).cast(pl.Date))
    roles = Roles("t", ["name", "i"], "y", time="t", missing=-1)
    schema, groups = Schema.fit_encode(frame, roles, standardise="item", lags=2, max_length=9)
    arrays = {name: torch.as_tensor(x) for name, x in schema.arrays().items()}
    back = Schema.from_saved(json.loads(json.dumps(schema.to_json())), arrays)
    one, two = schema.standardise(groups), back.standardise(back.encode(frame))
    np.testing.assert_array_equal(one.value, two.value)
    np.testing.assert_array_equal(one.item, two.item)
    np.testing.assert_array_equal(one.lagged, two.lagged)
    assert back.to_json() == schema.to_json()
    assert back.vocabulary is not None
    assert back.vocabulary.names == groups.vocabulary.names  # type: ignore[union-attr]


def test_encoding_keeps_the_tables_units_and_standardising_changes_values_only() -> None:
    frame = many()
    schema, groups = Schema.fit_encode(frame, Roles("g", "i", "y"), standardise={"y": "item"})
    assert groups.value is not None
    np.testing.assert_array_equal(groups.value[:, 0], frame["y"].to_numpy()[groups.rows])
    seen = schema.standardise(groups)
    assert seen.every.item is groups.every.item
    assert schema.standardiser is not None
    np.testing.assert_allclose(schema.standardiser.undo(seen.value, seen.item), groups.value, atol=1e-12)  # type: ignore[arg-type]
    for bad in ("mean", ["item", "item"], {"x": "item"}):
        with pytest.raises(DataError, match="standardise"):
            Schema.fit(frame, Roles("g", "i", "y"), standardise=bad)


def test_one_group_alone_encodes_as_among_others() -> None:
    frame = many()
    schema, groups = Schema.fit_encode(frame, Roles("g", "i", "y"), standardise="item")
    alone = schema.encode(frame.filter(pl.col("g") == 7))
    among = groups.subset(np.array([7]))
    np.testing.assert_array_equal(alone.item, among.item)
    np.testing.assert_array_equal(schema.standardise(alone).value, schema.standardise(among).value)


def test_floats_that_are_nearly_steps_are_steps() -> None:
    time = np.repeat(np.arange(30) * 0.1, 2)
    frame = pl.DataFrame(
        {"t": pl.Series(time).round(12), "g": np.repeat(np.arange(30), 2), "i": [1, 2] * 30, "y": time}
    )
    groups = Schema.fit_encode(frame, Roles("g", "i", "y", time="t"), lags=3)[1]
    assert groups.lagged is not None
    assert (groups.lagged >= 0).sum(0).tolist() == [29, 28, 27]


def test_every_tensor_of_a_batch_has_its_layout() -> None:
    assert [f.name for f in fields(Batch)] == ["length", *LAYOUT]


@settings(max_examples=40, deadline=None)
@given(tables())
def test_all_rows_as_one_group_are_the_rows(table: dict[str, list[Any]]) -> None:
    groups = encoded(table)
    part = groups.subset(np.arange(len(groups))[::2])
    flat = part.flat()
    (row,) = looped(replace(part, every=subset(part), offsets=np.array([0, len(part.rows)]), chosen=None))
    wanted = Batch.of([row])
    for name in ("exists", "target", "item", "value", "observed", "weight", "exposure"):
        torch.testing.assert_close(getattr(flat, name), getattr(wanted, name), rtol=0, atol=0)
    assert flat.attributes is not None
    assert flat.attributes.dtype == torch.float64
    np.testing.assert_array_equal(flat.attributes[0], part.attributes)
    assert len(groups.flat(rows=3).exists[0]) <= 3


def subset(part: Groups) -> Observations:
    return Observations(*(getattr(part, "rows" if f.name == "row" else f.name) for f in fields(Observations)))


def test_one_more_position_is_a_group_that_is_longer_by_one() -> None:
    groups = [{"item": [3, 1], "value": [1.0, np.nan], "when": [1.0, 2.0], "lag": [0, 0]}, {"item": [2, 0, 3]}]
    groups[1] |= {"value": [3.0, 4.0, 5.0], "when": [5.0, 7.0, 9.0], "lag": [0, 0, 1]}
    longer = [{n: [*x[:2], new[n], *x[2:]] for n, x in g.items()} for g, new in zip(groups, NEW, strict=True)]
    found = Batch.of(groups).with_one_more(item=4, when=torch.tensor([[8.0], [9.5]]))
    wanted = Batch.of(longer)
    assert found.length == wanted.length == 3
    assert found.position is not None
    assert found.position[:, :3].tolist() == [[0, 1, 2]] * 2
    for name in ("exists", "item", "value", "observed", "lag", "when"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=0, atol=0, msg=name)


NEW = [{"item": 4, "value": np.nan, "when": w, "lag": 0} for w in (8.0, 9.5)]


def test_a_field_that_is_selected_or_moved_is_every_field() -> None:
    table: dict[str, Any] = {n: [1, 1, 2] for n in "goyzaew"} | {"i": list("abc"), "t": [True] * 3}
    batch = next(encoded(table, max_length=1).batches(99)).replace(
        when=torch.zeros(3, 1).double(),
        lag=torch.zeros(3, 1).long(),
        hidden=torch.zeros(3, 1, 1).bool(),
        strange=torch.zeros(3, 1).bool(),
        noise=torch.zeros(3, 1),
        rank=torch.zeros(3, 1).long(),
    )
    some, double = batch.select(torch.tensor([0, 2])), batch.to(dtype=torch.float64)
    for name, cells in LAYOUT.items():
        assert len(getattr(some, name)) == 2, name
        assert getattr(double, name).dtype == (cells.dtype or torch.float64), name


@pytest.mark.parametrize("order", [None, "o"])
def test_what_is_fitted_on_does_not_depend_on_how_the_table_came(order: str | None) -> None:
    table = many(o=np.arange(len(many()))).with_columns(name=pl.format("n {}", "g"), y=pl.col("y").round(0))
    roles = Roles("name", "i", "y", order=order)
    one = Schema.fit_encode(table, roles)[1]
    other = table.sample(fraction=1.0, shuffle=True, seed=4)
    two = Schema.fit_encode(other, roles)[1]
    assert one.labels.tolist() == two.labels.tolist()
    np.testing.assert_array_equal(table["y"].to_numpy()[one.rows], one.value[:, 0])  # type: ignore[index]
    np.testing.assert_array_equal(other["y"].to_numpy()[two.rows], two.value[:, 0])  # type: ignore[index]
    aside = {"row": np.zeros(0)}
    assert (
        replace(one, every=replace(one.every, **aside)).fingerprint()
        == replace(two, every=replace(two.every, **aside)).fingerprint()
    )
    for a, b in zip(one.split(0.3, seed=2), two.split(0.3, seed=2), strict=True):
        np.testing.assert_array_equal(a.value, b.value)


def test_rows_stay_in_the_order_of_the_table_where_it_counts() -> None:
    table = pl.DataFrame({"g": [1, 1, 1], "i": [3, 1, 2], "y": [1.0, 2.0, 3.0]})
    assert Schema.fit_encode(table, Roles("g", "i", "y"))[1].rows.tolist() == [1, 2, 0]
    assert Schema.fit_encode(table, Roles("g", "i", "y", order="row"))[1].rows.tolist() == [0, 1, 2]
    assert Schema.fit_encode(table, Roles("g", "i", "y"), max_length=2)[1].rows.tolist() == [0, 1, 2]
    assert Schema.fit(table, Roles("g", "i", "y")).encode(table).rows.tolist() == [0, 1, 2]


def test_no_standardiser_is_fitted_unless_it_is_asked_for() -> None:
    assert Schema.fit_encode(many(), Roles("g", "i", "y"))[0].standardiser is None
    assert Schema.fit(many(), Roles("g", "i", "y")).standardiser is not None


def test_each_column_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from efattn.data import reading

    seen: Counter[str] = Counter()

    def counted(verb: str, real: Any, columns: Any, *args: Any, **more: Any) -> Any:
        seen.update(f"{verb} {c.name}" for c in (columns if isinstance(columns, list) else [columns]))
        return real(columns, *args, **more)

    for verb in ("distinct", "moments", "ranks", "numbers"):
        monkeypatch.setattr(reading, verb, partial(counted, verb, getattr(reading, verb)))
    table = many(o=np.arange(len(many())) ** 2)
    Schema.fit_encode(table, Roles("g", "i", "y", order="o", time="g"), standardise="item", lags=1, when="auto")
    assert seen == dict.fromkeys(["distinct g", "distinct i", "moments g", "moments o", "ranks o", "numbers y"], 1)


def test_notes_say_what_they_are_about() -> None:
    schema = Schema.fit(many(o=1), Roles("g", "i", "y", order="o"), max_length=3)
    groups = schema.encode(pl.DataFrame({"g": [1, 1, 2], "i": [1, 99, None], "y": [1.0, 2.0, 1.0], "o": [1, 1, 2]}))
    found = {note.kind: note for note in groups.notes}
    assert set(found) == {"no item", "unknown items", "ties", "one row"}
    assert (found["unknown items"].column, found["unknown items"].row) == ("i", 1)
    assert found["unknown items"].important
    (near,) = Schema.fit(many(), Roles("g", "i", "y")).encode({"g": [1, 1], "i": [1, 2], "Y": [1.0, 1.0]}).notes
    assert (near.kind, near.column, near.important) == ("missing column", "y", True)


def test_a_column_that_names_groups_may_be_an_attribute_too():
    table = pl.DataFrame({"year": [1990, 1990, 1991], "who": ["a", "b", "a"], "y": [1.0, 2.0, 3.0]})
    groups = Schema.fit_encode(table, Roles("year", "who", "y", attributes=["year"]))[1]
    assert groups.attributes[:, 0].tolist() == [1990, 1990, 1991]
