"""A table that stays on disk is the same table: its groups, its schema and what is fitted to it."""

import os
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from small_training import same, weights

from efattn import EFA, DataError, Training
from efattn.data import Groups, Roles, Schema, Table, gathering, mapping, partition, sampling, sources, stored

ROLES = {"group": "user", "item": "product", "value": "amount", "order": "at"}
QUICK: dict[str, Any] = {"companions": None, "refit": False, "layers": 1, "width": 8}


@pytest.fixture(autouse=True)
def _small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources, "SIZE", 3_000)
    monkeypatch.setattr(partition, "BUCKET", 4_000)


def table(rows: int = 400, seed: int = 0) -> pl.DataFrame:
    """Groups scattered over all rows, ties in the order, an attribute of words."""
    draw = np.random.default_rng(seed)
    user = draw.integers(0, 30, rows)
    return pl.DataFrame(
        {
            "user": [f"u{k}" for k in user],
            "product": [f"p{k}" for k in draw.integers(0, 9, rows)],
            "amount": np.where(draw.random(rows) < 0.1, np.nan, draw.normal(size=rows)),
            "at": draw.integers(0, 50, rows) ** 2,
            "colour": [["red", "blue", "green"][k] for k in draw.integers(0, 3, rows)],
            "price": draw.random(rows) + 0.5,
            "weight": draw.integers(0, 3, rows),
            "scored": draw.random(rows) < 0.9,
            "day": user // 2,
            "kind": [f"k{k % 2}" for k in user],
        }
    ).with_columns(pl.col("amount").fill_nan(None))


def as_files(frame: pl.DataFrame, folder: Path, kind: str, pieces: int = 3) -> Path:
    folder.mkdir()
    for k in range(pieces):
        part = frame[len(frame) * k // pieces : len(frame) * (k + 1) // pieces]
        part.write_parquet(folder / f"{k}.parquet") if kind == "parquet" else part.write_csv(folder / f"{k}.csv")
    return folder


def same_groups(one: Groups, two: Groups) -> None:
    for f in fields(one.every):
        x, y = getattr(one.every, f.name), getattr(two.every, f.name)
        assert (x is None) == (y is None), f.name
        if x is not None:
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y, err_msg=f.name)
    for name in ("offsets", "lagged", "numbers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert one.labels.tolist() == two.labels.tolist()
    assert one.ties == two.ties
    assert one.fingerprint() == two.fingerprint()


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "all roles": (
        {**ROLES, "attributes": ["colour", "price"], "weight": "weight", "target": "scored", "noise": "price"},
        {"when": "auto"},
    ),
    "no order": ({"group": "user", "item": "product", "value": "amount", "exposure": "price"}, {}),
    "two keys": ({"group": ["kind", "user"], "item": ["product", "colour"]}, {"max_length": 5}),
    "lags": ({"group": "user", "value": "amount", "time": "day", "series": "kind"}, {"lags": 1}),
}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("case", CASES)
def test_groups_on_disk_are_those_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, case: str
) -> None:
    columns, sizes = CASES[case]
    frame, roles = table(), Roles(**columns)
    folder = as_files(frame, tmp_path / "parts", kind)
    written = list[int]()
    monkeypatch.setattr(stored, "read_rows", lambda path: written.append(1) or partition.read_rows(path))
    schema, groups = Schema.fit_encode(frame, roles, **sizes)
    kept, on_disk = stored.Stored(folder).fit_encode(roles, **sizes)
    same_groups(groups, on_disk)
    assert kept.to_json() | {"usual": None} == schema.to_json() | {"usual": None}  # medians are not known while read
    assert len(written) > 3, "the table is sorted in several files"
    assert on_disk.home is not None
    assert not list(on_disk.home.glob("rows-*"))


@pytest.mark.parametrize("kind", ["parquet", pytest.param("csv", marks=pytest.mark.slow)])
def test_training_from_disk_is_training_from_memory_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    frame, columns = table(), {**ROLES, "attributes": ["colour", "price"], "validation": 0.2, "progress": False}
    folder = as_files(frame, tmp_path / "parts", kind)
    make = lambda: EFA(**QUICK, training=Training(epochs=2, tokens=60, device="cpu"))  # noqa: E731
    one, two = make().fit(frame, **columns), make().fit(folder, on_disk=True, **columns)
    assert one.history_[-1]["validation"] == two.history_[-1]["validation"]
    assert same(weights(one), weights(two))
    assert one.score(frame) == two.score(frame) == two.score(folder)
    monkeypatch.setenv("EFATTN_IN_MEMORY", "1000")
    monkeypatch.setattr(gathering.whole_groups, "__defaults__", (3_000,))
    assert two.score(folder) == pytest.approx(one.score(frame), rel=1e-6), "in portions"
    assert len(two.evaluate(folder).table) == len(one.evaluate(frame).table)
    assert "on disk" in [note.kind for note in two.notes_]


def test_companions_and_families_of_a_large_table_know_some_of_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "FEW", 150)
    frame = table()
    folder = as_files(frame, tmp_path / "parts", "parquet")
    model = EFA(width=8, layers=1, training=Training(epochs=1, device="cpu"))
    columns = {"group": "user", "item": "product", "value": "amount", "terms": "value"}
    model.set_params(terms=columns.pop("terms")).fit(folder, on_disk=True, progress=False, validation=0.2, **columns)
    (note,) = [note for note in model.notes_ if note.kind == "sample"]
    assert "networks are trained on all" in str(note)
    assert model.fitted_.sizes["rows"] == len(frame)
    assert np.isfinite(model.score(frame))


def test_some_groups_in_memory_are_whole_and_have_their_lags() -> None:
    columns, sizes = CASES["lags"]
    _, groups = Schema.fit_encode(table(), Roles(**columns), **sizes)
    groups = Groups(**{f.name: getattr(groups, f.name) for f in fields(groups)} | {"home": Path("here")})
    some = sampling.few(groups, 100)
    assert some.home is None
    assert 0 < some.count <= 100
    every = {groups.labels[k]: groups.subset(np.array([k])) for k in range(len(groups))}
    batch = some.batch(np.arange(len(some)))
    names = [some.labels[k] for k in some.numbers]
    for name, mine in zip(names, range(len(some)), strict=True):
        whole = every[name].batch(np.array([0]))
        for part in ("value", "lag", "rows"):
            x, y = getattr(batch, part)[mine], getattr(whole, part)[0]
            there = batch.exists[mine] if part != "rows" else batch.exists[mine, : batch.length]
            assert x[there].tolist() == y[: len(y)][whole.exists[0][: len(y)]].tolist()
    parts = list(sampling.each_part(groups, 100))
    assert len(parts) > 2
    assert [part.labels[k] for part in parts for k in part.numbers] == groups.labels.tolist()


def test_large_arrays_go_to_other_processes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = stored.Stored(as_files(table(), tmp_path / "parts", "parquet")).fit_encode(Roles(**ROLES))[1]
    whole = len(pickle.dumps(groups))
    monkeypatch.setattr(mapping, "SMALL", 0)
    sent = pickle.dumps(groups)
    assert len(sent) < whole - groups.every.row.nbytes
    same_groups(groups, pickle.loads(sent))


def test_what_was_made_is_found_again_until_a_file_changes(tmp_path: Path) -> None:
    folder, roles = as_files(table(), tmp_path / "parts", "parquet"), Roles(**ROLES)
    first = stored.Stored(folder).fit_encode(roles)[1].home
    assert stored.Stored(folder).fit_encode(roles)[1].home == first
    table(seed=1).write_parquet(folder / "0.parquet")
    other = stored.Stored(folder).fit_encode(roles)[1].home
    assert other is not None
    assert first is not None
    assert other != first
    os.utime(first / "used", (0, 0))
    stored.Stored(folder).fit_encode(roles)
    assert sorted(p.name for p in stored.cache().iterdir()) == [other.name], "what nobody uses goes"


def test_an_error_names_file_column_and_row_and_leaves_nothing(tmp_path: Path) -> None:
    frame = table()
    folder = as_files(frame.with_columns(amount=pl.col("amount").fill_null(0.0)), tmp_path / "parts", "parquet")
    bad = pl.read_parquet(folder / "1.parquet")
    bad.with_columns(amount=pl.when(pl.int_range(len(bad)) == 7).then(np.inf).otherwise("amount")).write_parquet(
        folder / "1.parquet"
    )
    with pytest.raises(DataError, match=r"1\.parquet.*column 'amount' has inf at row 7") as caught:
        stored.Stored(folder).fit_encode(Roles(**ROLES))
    assert (caught.value.column, caught.value.row) == ("amount", 7)
    assert not list(stored.cache().iterdir())
    bad.rename({"amount": "sum"}).write_parquet(folder / "1.parquet")
    with pytest.raises(DataError, match=r"1\.parquet.* has no column 'amount'"):
        stored.Stored(folder).fit_encode(Roles(**ROLES))
    bad.with_columns(pl.lit(True).alias("amount")).write_parquet(folder / "1.parquet")
    with pytest.raises(DataError, match=r"'amount' holds float64 in earlier files and boolean in .*1\.parquet"):
        stored.Stored(folder).fit_encode(Roles(**ROLES))
    with pytest.raises(DataError, match=r"no column 'usr'.*Did you mean 'user'"):
        stored.Stored(folder / "0.parquet").fit_encode(Roles(**(ROLES | {"group": "usr"})))


def test_a_folder_is_one_table_and_a_large_one_stays_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = table()
    folder = as_files(frame, tmp_path / "parts", "csv")
    assert Table.read(folder).native.equals(Table.read(str(folder / "*.csv")).native)
    assert Table.read(folder).native["product"].to_list() == frame["product"].to_list()
    assert isinstance(stored.source_of(folder), Table)
    monkeypatch.setenv("EFATTN_IN_MEMORY", "1000")
    assert isinstance(stored.source_of(folder), stored.Stored)
    assert isinstance(stored.source_of(folder, on_disk=False), Table)
    frame.write_parquet(folder / "odd.parquet")
    with pytest.raises(DataError, match="of one kind"):
        Table.read(folder)
    with pytest.raises(DataError, match="on_disk"):
        stored.source_of(frame, on_disk=True)
