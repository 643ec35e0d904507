"""Any frame in, the same kind out; any separated file read as it was meant."""

import datetime
import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from efattn import DataError
from efattn.data import Roles, Schema, Table, from_wide

COLUMNS: dict[str, Any] = {
    "g": ["b", "a", "b", None],
    "n": [3, 2**53 + 1, -1, 0],
    "x": [0.5, None, 1.5, 2.0],
    "d": [datetime.date(2024, 1, d) for d in (1, 2, 3, 4)],
    "f": [True, False, None, True],
}
MAKERS = {
    "pandas": lambda c: pd.DataFrame(c, index=[7, 7, 1, 0]),
    "polars": pl.DataFrame,
    "lazy": pl.LazyFrame,
    "pyarrow": pa.table,
}


@pytest.fixture(params=MAKERS)
def frame(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param](COLUMNS)


def test_columns_come_out_exactly(frame: Any) -> None:
    table = Table.read(frame)
    assert table.names == list(COLUMNS)
    assert len(table) == 4
    assert table.column("g").to_list() == COLUMNS["g"]
    assert table.column("n").to_list() == COLUMNS["n"]


def test_the_kind_that_comes_in_goes_out_with_rows_and_other_columns_untouched(frame: Any) -> None:
    new = {"mean": np.array([1.0, 2.0, np.nan, 4.0]), "name": ["p", None, "q", "r"], "x": np.zeros(4)}
    out = Table.read(frame).with_columns(new)
    assert type(out) is type(frame)
    if isinstance(out, pd.DataFrame):
        assert out.index.tolist() == [7, 7, 1, 0]
        pd.testing.assert_frame_equal(out[["g", "n", "d", "f"]], frame[["g", "n", "d", "f"]])
    back = Table.read(out)
    assert back.names == [*COLUMNS, "mean", "name"]
    assert back.column("g").to_list() == COLUMNS["g"]
    assert back.column("n").to_list() == COLUMNS["n"]
    assert back.column("name").to_list() == new["name"]
    assert back.column("x").to_list() == [0.0] * 4
    np.testing.assert_array_equal(back.column("mean").to_numpy(), new["mean"])


def test_rows_are_taken_in_the_order_asked_for(frame: Any) -> None:
    out = Table.read(frame).take(np.array([2, 0]))
    assert type(out) is type(frame)
    assert Table.read(out).column("n").to_list() == [-1, 3]


def test_a_file_a_reader_and_a_mapping_give_polars(tmp_path: Path) -> None:
    batches = pa.table(COLUMNS).to_batches()
    pl.DataFrame(COLUMNS).write_parquet(tmp_path / "t.parquet")
    pyarrow.parquet.write_table(pa.table(COLUMNS), tmp_path / "named.wrongly.csv")
    sources = [
        COLUMNS,
        pa.RecordBatchReader.from_batches(batches[0].schema, batches),
        tmp_path / "t.parquet",
        str(tmp_path / "named.wrongly.csv"),
    ]
    for source in sources:
        table = Table.read(source)
        assert isinstance(table.native, pl.DataFrame)
        assert table.column("n").to_list() == COLUMNS["n"]
    assert Table.read(tmp_path / "t.parquet", only=["x", "n"]).names == ["n", "x"]


CELL = st.one_of(st.integers(-999, 999).map(str), st.floats(-99, 99).map(lambda x: f"{x:.2f}"))
TEXT = st.text(st.sampled_from("abcé ,;|\t\"'\n"), min_size=1, max_size=6).map(lambda s: "n" + s)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(TEXT, CELL, CELL), min_size=2, max_size=12),
    separator=st.sampled_from(",;\t|"),
    comma=st.booleans(),
    mark=st.booleans(),
    zipped=st.booleans(),
    windows=st.booleans(),
)
def test_a_separated_file_reads_as_it_was_written(
    rows: list[tuple[str, str, str]], separator: str, comma: bool, mark: bool, zipped: bool, windows: bool
) -> None:
    def quoted(cell: str) -> str:
        return '"' + cell.replace('"', '""') + '"'

    decimal = "," if comma and separator != "," else "."
    lines = [separator.join(('"a, name"', '"x;1"', '"y|z"'))]
    lines += [separator.join((quoted(a), b.replace(".", decimal), c.replace(".", decimal))) for a, b, c in rows]
    data = ("\ufeff" if mark else "").encode() + (("\r\n" if windows else "\n").join(lines) + "\n").encode()
    table = Table.read(io.BytesIO(gzip.compress(data) if zipped else data))
    assert table.names == ["a, name", "x;1", "y|z"]
    assert table.column("a, name").to_list() == [a for a, _, _ in rows]
    np.testing.assert_allclose(table.column("x;1").cast(pl.Float64).to_numpy(), [float(b) for _, b, _ in rows])


def test_what_is_said_overrides_what_is_found() -> None:
    text = "a;b,c\n1;2,3\n"
    assert Table.read(io.StringIO(text), separator=",").names == ["a;b", "c"]
    assert Table.read(io.StringIO(text), separator=";").names == ["a", "b,c"]
    assert Table.read(io.StringIO(text), separator=";", decimal=".").column("b,c").to_list() == ["2,3"]
    assert Table.read(io.StringIO(text), separator=";").column("b,c").to_list() == [2.3]
    with pytest.raises(DataError, match="is for files"):
        Table.read(COLUMNS, separator=";")


def test_types_that_change_late_in_a_file_are_still_found() -> None:
    text = "id,x\n" + "1,2\n" * 20_000 + "one,2.5\n"
    table = Table.read(io.StringIO(text))
    assert table.column("id")[-1] == "one"
    assert table.column("x")[-1] == 2.5


def test_columns_are_named_for_a_file_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("196\t242\t3\t881250949\n186\t302\t3\t891717742\n")
    table = Table.read(tmp_path / "u.data", columns=["user", "movie", "rating", "time"])
    assert table.column("movie").to_list() == [242, 302]
    assert Table.read(tmp_path / "u.data", columns=["user", "movie", "rating", "time"], only=["time"]).names == ["time"]
    with pytest.raises(DataError, match="4 columns"):
        Table.read(tmp_path / "u.data", columns=["user", "movie"])


@pytest.mark.parametrize("kind", MAKERS)
def test_a_wide_table_turns_long_group_by_group(kind: str) -> None:
    wide = MAKERS[kind]({"day": [2, 1, 4, 3], "A": [1.0, None, 3.0, 4.0], "B": [5, 6, 7, 8]})
    long = from_wide(wide, "day", "city", "temperature")
    assert type(long) is type(wide)
    table = Table.read(long)
    assert table.names == ["day", "city", "temperature"]
    assert table.column("day").to_list() == [2, 2, 1, 1, 4, 4, 3, 3]
    assert table.column("city").to_list() == ["A", "B"] * 4
    np.testing.assert_array_equal(table.column("temperature").to_numpy(), [1, 5, np.nan, 6, 3, 7, 4, 8])
    assert len(Table.read(from_wide(wide, "day", drop_missing=True))) == 7
    assert Table.read(from_wide(wide, "day", items=["B"])).column("item").to_list() == ["B"] * 4


def test_a_wide_table_that_cannot_be_turned_says_why() -> None:
    wide = pl.DataFrame({"day": [1], "name": ["x"], "A": [1.0]})
    with pytest.raises(DataError, match="share a type; 'name' holds string and 'A' float64"):
        from_wide(wide, "day")
    with pytest.raises(DataError, match="two columns"):
        from_wide(wide, "day", item="day")
    with pytest.raises(DataError, match="Did you mean 'day'"):
        from_wide(wide, "days")


def test_every_kind_of_frame_gives_the_same_groups() -> None:
    columns = {"g": ["b", "a", "b", "a"], "i": ["x", "y", "y", "z"], "y": [1.0, None, 3.0, 4.0], "o": [2, 1, 1, 2]}
    roles = Roles("g", "i", "y", order="o")
    found = [Schema.fit_encode(make(columns), roles)[1] for make in MAKERS.values()]
    for groups in found:
        assert groups.labels.tolist() == ["a", "b"]
        assert groups.rows.tolist() == [1, 3, 2, 0]
        np.testing.assert_array_equal(groups.value, found[0].value)
        np.testing.assert_array_equal(groups.item, found[0].item)


def test_importing_the_data_layer_imports_no_frame_library() -> None:
    code = (
        "import sys, efattn.data; print([m for m in ('polars', 'pandas', 'pyarrow', 'narwhals') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
