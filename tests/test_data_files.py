"""A file is read as it was meant wherever in it something odd stands, whole and in portions alike, or it is said why
not, by the line of the file and the row of the table."""

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import efattn
from efattn import DataError
from efattn.data import Table, files
from efattn.data.portions import Portions

LONG = 400  # lines: more than are looked at to guess the layout


def whole_and_in_portions(tmp_path: Path, data: bytes, size: int = 300, **options: Any) -> pl.DataFrame:
    """The table read whole, which portions of it must be when put together."""
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    whole = Table.read(path, **options)
    portions = Portions(path, ("g",), size, options)
    assert portions.worthwhile
    portions.look()
    assert portions.scattered is None
    row, parts = 0, []
    for part, _ in portions:
        assert part.first_row == row
        row += len(part)
        parts.append(part.native)
    assert len(parts) > 1
    assert pl.concat(parts).equals(whole.native)
    found: pl.DataFrame = whole.native
    return found


def lines(*last: str, head: str = "g,x", line: str = "{},1") -> bytes:
    return ("\n".join([head, *(line.format(k) for k in range(LONG)), *last]) + "\n").encode()


def test_leading_zeros_anywhere_make_a_column_text(tmp_path: Path) -> None:
    found = whole_and_in_portions(tmp_path, lines("00070,1", "70000,2"))
    assert found["g"].dtype == pl.String
    assert found["g"][LONG] == "00070"
    assert found["x"].dtype == pl.Int64
    assert files.read_file(io.BytesIO(lines('"007",0.5', "7,007.5")))["g"].to_list()[-2:] == ["007", "7"]
    assert files.read_file(io.BytesIO(lines("1,0", "2,0.05")))["x"].dtype == pl.Float64


def test_a_late_decimal_comma_is_one(tmp_path: Path) -> None:
    found = whole_and_in_portions(tmp_path, lines("900;1,5", "901;1,234", head="g;x", line="{};1"))
    assert found["x"].to_list()[-2:] == [1.5, 1.234]
    points = lines("900;1,5;2", "901;1;2.5", head="g;x;z", line="{};1;1")
    assert whole_and_in_portions(tmp_path, points)["x"].to_list()[-2:] == ["1,5", "1"]
    said = lines("900;1,5", "901;1", head="g;x", line="{};1")
    assert whole_and_in_portions(tmp_path, said, decimal=".")["x"].dtype == pl.String


def test_blank_lines_are_no_rows_and_empty_fields_are(tmp_path: Path) -> None:
    found = whole_and_in_portions(tmp_path, b"\n\n" + lines("", "900,", " ", ",", "", '901,"a\n\nb"', "", ""))
    assert found.rows()[LONG:] == [(900, None), (None, None), (901, "a\n\nb")]


def test_a_blank_line_in_a_file_of_one_column_is_a_missing_entry_but_at_the_end() -> None:
    assert files.read_file(io.BytesIO(b"y\n1\n\n2\n\n\n"))["y"].to_list() == [1, None, 2]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-8"])
def test_any_encoding_is_read_in_portions(tmp_path: Path, encoding: str) -> None:
    text = lines("900,é", "901,ü", head="g,größe").decode()
    found = whole_and_in_portions(tmp_path, text.encode(encoding), encoding=encoding)
    assert found.columns == ["g", "größe"]
    assert found["größe"].to_list()[-2:] == ["é", "ü"]
    with pytest.raises(DataError, match="not text in ascii") as error:
        whole_and_in_portions(tmp_path, text.encode(encoding), encoding="ascii")
    assert error.value.option == "encoding"


def test_windows_line_ends_are_cut_nowhere(tmp_path: Path) -> None:
    for size in range(300, 310):
        whole_and_in_portions(tmp_path, lines("900,a", "901,b").replace(b"\n", b"\r\n"), size)


def test_names_are_compared_not_their_hashes(tmp_path: Path) -> None:
    frame = pl.DataFrame({"g": [-1] * 40 + [-2] * 40, "x": range(80)})
    frame.write_parquet(tmp_path / "t.parquet")
    for path in (tmp_path / "t.parquet", tmp_path / "t.csv"):
        portions = Portions(path, ("g",), 100)
        if path.suffix == ".csv":
            frame.write_csv(path)
        portions.look()
        assert portions.scattered is None
        assert [len(table) for table, _ in portions] == [40, 40]


def test_a_line_that_is_wrong_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(lines("", "900,1,2"))
    for read in (lambda: Table.read(path), Portions(path, ("g",), 300).look):
        with pytest.raises(DataError, match=f"3 fields in line {LONG + 3} and 2"):
            read()


@pytest.mark.parametrize("quote", ['900,5" pipe', '900,"5 pipe', '900,"5" pipe'])
@pytest.mark.parametrize("after", [0, 70_000])
def test_a_stray_quote_is_named_by_its_line(tmp_path: Path, quote: str, after: int) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(lines(quote, *(f"{k},1" for k in range(1000, 1000 + after))))
    for read in (lambda: Table.read(path), Portions(path, ("g",), 300).look):
        with pytest.raises(DataError, match=f"stray quote in line {LONG + 2}"):
            read()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "memory", lambda: 2**22)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"g,x\n" + b"1,1\n" * 2**20))
    pl.DataFrame({"g": pl.repeat(1, 10**6, eager=True)}).write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv.gz", "t.parquet"):
        assert (tmp_path / name).stat().st_size < 2**16
        assert Portions(tmp_path / name, ("g",), 2**20).worthwhile
        assert not Portions(tmp_path / name, ("g",), 2**24).worthwhile
        with pytest.raises(DataError, match="GiB of memory"):
            files.read_file(tmp_path / name)
        assert files.header(tmp_path / name)[0] == "g"
    sizes = [len(table) for table, _ in Portions(tmp_path / "t.parquet", ("g",), 2**20)]
    assert sum(sizes) == 10**6


def test_a_column_named_like_a_zip_is_a_column() -> None:
    assert files.read_file(io.BytesIO(b"PK,x\n1,2\n")).columns == ["PK", "x"]


def test_a_header_in_another_encoding_loses_no_letter() -> None:
    with pytest.raises(DataError, match="line 1"):
        files.read_file(io.BytesIO("größe,x\n1,2\n".encode("latin-1")))


def test_aligned_columns_are_read_with_blanks_between_them() -> None:
    text = b'  name    x\n\n "a  b"   1\n c       22 \n'
    found = files.read_file(io.BytesIO(text), separator=" ")
    assert found.rows() == [("a  b", 1), ("c", 22)]


def test_columns_without_a_name_get_one() -> None:
    assert files.read_file(io.BytesIO(b"a,,\n1,2,3\n")).columns == ["a", "column_2", "column_3"]
    assert files.read_file(io.BytesIO(b",a\n1,2\n")).columns == ["", "a"]


@pytest.mark.parametrize("bad", [{"separator": "::"}, {"separator": '"'}, {"separator": "·"}, {"decimal": "x"}])
def test_a_layout_that_cannot_be_says_so(bad: dict[str, str]) -> None:
    with pytest.raises(DataError) as error:
        files.read_file(io.BytesIO(b"a,b\n1,2\n"), **bad)  # type: ignore[arg-type]
    assert error.value.option in bad


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz", "t.parquet"])
def test_the_header_comes_from_the_beginning(tmp_path: Path, name: str) -> None:
    frame = pl.DataFrame({"g": range(100_000), "größe": 1.5})
    path = tmp_path / name
    if name == "t.parquet":
        frame.write_parquet(path)
    else:
        data = frame.write_csv(separator="\t" if "tsv" in name else ",").encode()
        path.write_bytes(gzip.compress(data)[:-9] if name.endswith("gz") else data + b"\xff\xff")
    assert files.header(path) == ("g", "größe")
    (tmp_path / "bare.csv").write_text("1,2\n3,4\n")
    assert files.header(tmp_path / "bare.csv", columns=["a", "b"]) == ("a", "b")


def test_files_and_headers_need_no_torch(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("g,x\n1,2\n")
    code = (
        "import sys, efattn.data.files as files, efattn.data.table as table, efattn.data.roles, efattn.data\n"
        f"path = {str(tmp_path / 't.csv')!r}; print(files.header(path), len(table.Table.read(path)))\n"
        "dir(efattn.data); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "('g', 'x') 1\n"


def test_baskets_come_one_per_line(tmp_path: Path) -> None:
    path = tmp_path / "baskets.txt"
    path.write_text('milk, bread,"salt, coarse"\n\nmilk\nbread,,eggs\n')
    found = efattn.read_baskets(path)
    assert found.columns == ["basket", "item"]
    assert found.rows() == [
        (0, "milk"), (0, "bread"), (0, "salt, coarse"), (1, "milk"), (2, "bread"), (2, "eggs"),
    ]  # fmt: skip
    path.write_text("1 2  3\n2 \n")
    assert efattn.read_baskets(path, separator=" ")["item"].to_list() == ["1", "2", "3", "2"]
    assert efattn.read_baskets(io.BytesIO(b"a;b\n"), separator=";")["basket"].to_list() == [0, 0]
    for bad in (" \n\n", ",,\n"):
        path.write_text(bad)
        with pytest.raises(DataError, match="empty"):
            efattn.read_baskets(path)
    path.write_text('milk,"bread\n')
    with pytest.raises(DataError, match="stray quote in line 1"):
        efattn.read_baskets(path)


def test_rows_of_a_portion_are_counted_as_in_the_table() -> None:
    roles = efattn.data.Roles("g", "i", "y", order="o")
    table = {"g": [1, 1, 2], "i": ["a", "b", "c"], "y": [1.0, 2.0, 3.0], "o": [1, 2, 3]}
    schema = efattn.data.Schema.fit(table, roles)
    odd: dict[str, tuple[Any, str]] = {
        "g": ([1, None, 2], "row 101"),
        "y": ([1.0, 2.0, 1e31], "row 102"),
        "o": ([1, None, 2], "row 101"),
    }
    for name, (entries, row) in odd.items():
        with pytest.raises(DataError, match=row) as error:
            schema.encode(Table.read({**table, name: entries}, first_row=100))
        assert (error.value.column, f"row {error.value.row}") == (name, row)
    groups = schema.encode(Table.read({**table, "i": ["a", "x", "c"]}, first_row=100))
    assert [note.row for note in groups.notes if note.kind == "unknown items"] == [101]
    assert groups.label(2) == "row 102 (g 2)"
    assert groups.rows.tolist() == [0, 1, 2]
