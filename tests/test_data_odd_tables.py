"""The rows of docs/odd-inputs.md about groups, times, roles and files; test_data_odd_inputs walks them."""

import dataclasses
import datetime
import gzip
import io
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from test_data_odd_columns import BASE, DAILY, DAYS, PAGE, ROLES, case, fitted, noted, refused, refuses

from efattn import EFA, EfattnWarning, Training
from efattn.data import Roles, Schema, Table, files


@case
def max_length() -> None:
    groups = fitted(Roles(item="movie"), movie=[10, 20, 30, 40, 50], max_length=2)
    noted(groups, "max_length=2")
    (batch,) = groups.batches(100)
    assert batch.rows is not None
    assert batch.cut is not None
    assert batch.item is not None
    assert batch.rows.shape[1] == 2
    assert sorted(batch.rows[batch.exists].tolist()) == [0, 1, 2, 3, 4]
    for b in range(3):
        seen = set(batch.item[b][batch.exists[b]].tolist())
        assert seen | set(batch.cut[b].tolist()) - {-1} == {0, 1, 2, 3, 4}


@case
def bad_max_length() -> None:
    refused("max_length", "0", make=lambda: fitted(max_length=0))
    refused("lags", "-1", make=lambda: fitted(lags=-1))


@case
def time_gap() -> None:
    groups = fitted(DAILY, DAYS, day=[1, 1, 2, 2, 4, 4], lags=1)
    assert groups.lagged is not None
    assert groups.lagged[:, 0].tolist() == [-1, 0, -1]
    noted(groups, "step is 1", "2 have no lag 1")


@case
def same_time_twice() -> None:
    roles = Roles("run", "city", "temp", time="day")
    refused(
        "run 'a'",
        "run 'b'",
        "series",
        make=lambda: fitted(roles, DAYS, run=list("abcccc"), day=[1, 1, 2, 2, 2, 2], lags=1),
    )


@case
def time_varies_in_group() -> None:
    roles = Roles("run", "city", "temp", time="day")
    refused(
        "'day'",
        "run 'a'",
        "row 1",
        make=lambda: fitted(roles, DAYS, run=list("aabbcc"), day=[1, 2, 3, 3, 4, 4], lags=1),
    )


@case
def one_time() -> None:
    refused("two times", make=lambda: fitted(DAILY, DAYS, day=[1] * 6, lags=1))


@case
def lags_without_time() -> None:
    refused("time", make=lambda: fitted(Roles("day", "city", "temp"), DAYS, lags=1))


@case
def time_kind_changed() -> None:
    schema = Schema.fit({**DAYS, "day": [datetime.date(2024, 1, d) for d in DAYS["day"]]}, DAILY, lags=1)
    refused("'day'", "numbers", "dates", make=lambda: schema.encode(DAYS))


@case
def order_kind_changed() -> None:
    dated = {**DAYS, "at": [datetime.date(2024, 1, d) for d in DAYS["day"]]}
    schema, _ = Schema.fit_encode(dated, dataclasses.replace(DAILY, order="at"), when=True)
    refused("'at'", "numbers", "dates", make=lambda: schema.encode({**DAYS, "at": DAYS["day"]}))


@case
def repeated_item() -> None:
    groups = fitted(movie=[10, 20, 30, 30, 20])
    refused("movie 30", "row 3 (user 'u2')", make=groups.check_distinct)
    fitted().check_distinct()


@case
def repeated_unknown() -> None:
    fitted(movie=[None, None, 10, 30, 20]).check_distinct()


@case
def constant_value() -> None:
    schema, groups = Schema.fit_encode({**BASE, "rating": [3.0] * 5}, ROLES, standardise="global")
    noted(groups, "'rating'", "constant (3)")
    assert schema.standardiser is not None
    assert schema.standardiser.scale.tolist() == [1.0]


@case
def float_group() -> None:
    schema = Schema.fit(BASE, ROLES)
    groups = schema.encode({**BASE, "user": [1.0, 1.0, 2.0, 2.0, 3.0], "movie": [10.0, 20.0, None, 30.0, 20.0]})
    assert groups.labels.tolist() == [1, 2, 3]
    assert groups.item is not None
    assert sorted(groups.item.tolist()) == [0, 1, 1, 2, 3]


@case
def fraction_group() -> None:
    doses = [0.5, 1.0, 2.0, 2.0, 1.0]
    groups = fitted(movie=doses)
    assert groups.vocabulary is not None
    assert groups.vocabulary.names == [0.5, 1, 2]
    assert groups.vocabulary.find(2.0) == groups.vocabulary.find(2) == 2
    (note,) = (note for note in groups.notes if note.kind == "names")
    assert note.important  # three numbers in five rows
    refuses("user", [1.5, float("inf"), 2.0, 2.0, 1.0], "inf at row 1")


@case
def huge_integer() -> None:
    ids = [2**53, 2**53 + 1, 2**53, 2**62, 2**62 + 1]
    assert fitted(movie=ids).vocabulary.names == sorted(set(ids))  # type: ignore[union-attr]
    past = pl.Series([2**64 - 1, 2**64 - 2, 1, 2, 3], dtype=pl.UInt64)
    assert fitted(movie=past).vocabulary.names == [1, 2, 3, 2**64 - 2, 2**64 - 1]  # type: ignore[union-attr]
    refuses("movie", pl.Series([1, 2**70, 1, 2, 3], dtype=pl.Int128), "row 1", "text")  # type: ignore[arg-type]


@case
def huge_float() -> None:
    refuses("movie", [1.0, 2.0**60, 1.0, 2.0, 3.0], "row 1", "digits")


@case
def duplicate_role() -> None:
    refused("'rating'", "twice", make=lambda: Roles("user", "movie", ["rating", "rating"]))


@case
def incompatible_roles() -> None:
    refused("'rating'", "value", "order", make=lambda: Roles("user", "movie", "rating", order="rating"))


@case
def told_item() -> None:
    def model(terms: str | None) -> EFA:
        frame = pl.DataFrame({"year": [1] * 3 + [2] * 3 + [3] * 3, "month": [3, 1, 2] * 3, "rain": np.arange(9.0) % 4})
        quick = EFA(context="past", terms=terms, companions=None, training=Training(epochs=1))
        roles = {"item": "month", "order": "month", "attributes": "month", "value": None if terms == "item" else "rain"}
        return quick.fit(frame, group="year", **roles, progress=False)

    assert model("value").schema_.vocabulary.names == [1, 2, 3]
    with pytest.warns(EfattnWarning, match="only values are modelled"):
        assert model(None).terms_ == ("value",)
    refused("'month'", "another role", make=lambda: model("item"))


@case
def time_is_group() -> None:
    fitted(DAILY, DAYS, lags=1)
    Roles("user", "movie", order="when", time="when")


@case
def nothing_to_model() -> None:
    refused("item", "value", make=lambda: Roles("user"))


@case
def duplicate_rows() -> None:
    twice = pl.concat([pl.DataFrame(DAYS), pl.DataFrame(DAYS)[1:2]])
    groups = Schema.fit_encode(twice, Roles("day", "city", "temp"))[1]
    noted(groups, "1 of 7 rows", "row 6", "unique")
    assert [note.important for note in groups.notes if note.kind == "duplicates"] == [True]

    def silent(frame: pl.DataFrame, *roles: str | None, **more: str) -> None:
        found = Schema.fit_encode(frame, Roles(*roles, **more))[1].notes  # type: ignore[arg-type]
        assert all(note.kind != "duplicates" for note in found)

    basket = pl.DataFrame({"user": [1, 1, 1, 2, 2], "item": list("aabab"), "at": [1, 1, 1, 1, 1]})
    silent(basket, "user", "item")  # two of one thing in a basket
    silent(
        basket.with_columns(at=pl.Series([1, 1, 2, 1, 1])).vstack(basket.with_columns(at=pl.col("at") + 8)),
        "user",
        "item",
        order="at",
    )
    silent(basket.with_columns(kilos=pl.lit(1.0)), "user", value="kilos")  # nothing tells rows apart
    silent(twice.with_columns(temp=pl.when(pl.col("day") == 1).then(None).otherwise("temp")), "day", "city", "temp")
    again = pl.concat([twice.with_columns(temp=pl.int_range(7).cast(float) // 2), twice[:3].with_columns(temp=9.0)])
    silent(again, "day", "city", "temp")  # where much is measured again, some agree
    logged = pl.concat([basket[1:], basket[1:2]])
    noted(Schema.fit_encode(logged, Roles("user", "item", order="at"))[1], "1 of 5 rows", "row 4")


@case
def duplicate_name() -> None:
    for frame in (
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pa.table([[1], [2]], names=["a", "a"]),
        io.StringIO("a,a\n1,2\n"),
    ):
        refused("'a'", "Rename", make=lambda frame=frame: Table.read(frame))


@case
def categorical() -> None:
    plain = fitted()
    for user, movie in (
        (pd.Categorical(BASE["user"]), pd.Categorical(BASE["movie"])),
        (pa.array(BASE["user"]).dictionary_encode(), pa.array(BASE["movie"]).dictionary_encode()),
    ):
        make = pa.table if isinstance(user, pa.Array) else pd.DataFrame
        groups = Schema.fit_encode(make({**BASE, "user": user, "movie": movie}), ROLES)[1]
        assert groups.labels.tolist() == plain.labels.tolist()
        assert groups.vocabulary is not None
        assert groups.vocabulary.names == [10, 20, 30]
    enum = pl.Series(BASE["user"], dtype=pl.Enum(["u3", "u2", "u1"]))
    assert fitted(user=enum).labels.tolist() == ["u1", "u2", "u3"]


@case
def timezone() -> None:
    at = pd.date_range("2024-03-30 12:00", periods=3, freq="D", tz="Europe/Paris").repeat(2)
    frame = pd.DataFrame({**DAYS, "day": at, "city": at})
    schema, groups = Schema.fit_encode(frame, Roles("day", "city", "temp"))
    assert groups.labels[0] == at[0].to_pydatetime()
    again = schema.encode(frame.assign(city=at.tz_convert("UTC")))
    assert again.item is not None
    assert again.item.tolist() == [0, 0, 1, 1, 2, 2]
    refused("'city'", "time zone", make=lambda: schema.encode(frame.assign(city=at.tz_localize(None))))
    noted(
        Schema.fit_encode(frame.drop(columns="city"), Roles("day", value="temp", time="day"), lags=1)[1],
        "1 day",
        "1 have no lag 1",
    )


@case
def mixed_types() -> None:
    frame = pd.DataFrame({**BASE, "movie": pd.Series([1, None, 2, "three", 4], dtype=object)})
    refused("'movie'", "row 3", "str", make=lambda: Schema.fit(frame, ROLES))


@case
def nested() -> None:
    for column in ("user", "movie", "rating", "when"):
        refuses(column, [[1], [2], [3], [4], [5]])


@case
def negative_weight() -> None:
    refuses("w", [1, 1, 1, -0.5, 1], "-0.5 at row 3")


@case
def zero_exposure() -> None:
    refuses("e", [1, 0, 1, 1, 1], "0.0 at row 1")


@case
def zero_weight() -> None:
    fitted(w=[0, 0, 1, 1, 1])


@case
def leading_zeros() -> None:
    assert Table.read(io.StringIO("id,x\n007,1\n12,2\n")).column("id").to_list() == ["007", "12"]
    late = Table.read(io.StringIO("id,x\n" + "70,1\n" * 300 + "00070,1\n"))
    assert set(late.column("id")) == {"70", "00070"}


@case
def late_comma() -> None:
    late = "a;x\n" + "1;2\n" * 300 + "1;2,5\n"
    assert Table.read(io.StringIO(late)).column("x")[-1] == 2.5
    assert Table.read(io.StringIO(late + "1.5;1\n")).column("x")[-2] == "2,5"


@case
def aligned_columns() -> None:
    assert Table.read(io.StringIO(" a    b\n 1    2\n"), separator=" ").column("b").to_list() == [2]


@case
def bad_separator() -> None:
    refused("'::'", "one character", make=lambda: Table.read(io.StringIO("a::b\n"), separator="::"))
    refused("'x'", "decimal", make=lambda: Table.read(io.StringIO("a;b\n"), decimal="x"))


@case
def stray_quote() -> None:
    refused("stray quote in line 2", make=lambda: Table.read(io.StringIO('a,b\n1,5" pipe\n2,x\n')))


@case
def nameless_columns() -> None:
    assert Table.read(io.StringIO("a,,\n1,2,3\n")).names == ["a", "column_2", "column_3"]


@case
def control_characters() -> None:
    odd = "us\x1b[2Jer"
    refused("us\\x1b[2Jer 'u\\x07'", make=lambda: fitted(
        Roles(odd, "movie", "rating"), **{odd: ["u\x07"] * 5}, movie=[1, 2, 3, 4, 1]
    ).check_distinct())  # fmt: skip


@case
def bomb() -> None:
    with mock.patch.object(files, "memory", return_value=2**16):
        zipped = gzip.compress(b"a,b\n" + b"1,2\n" * 2**16)
        refused("GiB of memory", make=lambda: Table.read(io.BytesIO(zipped)))


@case
def no_header() -> None:
    refused("1, 2, 3", "columns=[...]", make=lambda: Table.read(io.StringIO("1\t2\t3\n4\t5\t6\n")))
    assert Table.read(io.StringIO("1\t2\n3\t4\n"), columns=["a", "b"]).column("a").to_list() == [1, 3]
    assert Table.read(io.StringIO("1\t2\n3\t4\n"), header=True).names == ["1", "2"]


@case
def separators() -> None:
    for sign in ",;\t|":
        for mark in (b"", b"\xef\xbb\xbf"):
            decimal = "." if sign == "," else ","
            text = f'"the name"{sign}x\n"a{sign}b"{sign}1{decimal}5\nc{sign}2{decimal}25\n'
            table = Table.read(io.BytesIO(mark + text.encode()))
            assert table.names == ["the name", "x"]
            assert table.column("x").to_list() == [1.5, 2.25]
            assert table.column("the name").to_list() == [f"a{sign}b", "c"]


@case
def ragged_line() -> None:
    refused("line 3", "3 fields", make=lambda: Table.read(io.StringIO("a,b\n1,2\n1,2,3\n")))


@case
def blank_lines() -> None:
    assert Table.read(io.StringIO("a,b\n1,2\n\n3,4\n\n")).column("a").to_list() == [1, 3]
    assert Table.read(io.StringIO("a\n1\n\n3\n\n")).column("a").to_list() == [1, None, 3]


@case
def not_utf8() -> None:
    refused("line 2", "latin-1", make=lambda: Table.read(io.BytesIO("a,b\né,2\n".encode("latin-1"))))
    assert Table.read(io.BytesIO("a,b\né,2\n".encode("latin-1")), encoding="latin-1").column("a")[0] == "é"
    assert Table.read(io.BytesIO("a,b\né,2\n".encode("utf-16"))).column("a")[0] == "é"


@case
def directory() -> None:
    refused("directory", make=lambda: Table.read(PAGE.parent))


@case
def binary_file() -> None:
    for content in (b"PK\x03\x04 and more", b"\x89PNG\x00\x00"):
        refused("efattn reads CSV", make=lambda content=content: Table.read(io.BytesIO(content)))


@case
def empty_file() -> None:
    for content in (b"", b" \n\n"):
        refused("empty", make=lambda content=content: Table.read(io.BytesIO(content)))


@case
def cut_file() -> None:
    zipped = gzip.compress(b"a,b\n" + b"1,2\n" * 1000)
    refused("gzip", make=lambda: Table.read(io.BytesIO(zipped[:-9])))
    whole = io.BytesIO()
    pl.DataFrame(BASE).write_parquet(whole)
    refused("Parquet", make=lambda: Table.read(io.BytesIO(whole.getvalue()[:-9])))


@case
def no_file() -> None:
    refused("'nowhere.csv'", "path", make=lambda: Table.read("nowhere.csv"))
    refused("address", make=lambda: Table.read("https://example.org/table.csv"))


@case
def unreadable_file() -> None:
    with mock.patch.object(Path, "open", side_effect=PermissionError(13, "Permission denied")):
        refused("Permission denied", "permissions", make=lambda: Table.read(PAGE))


@case
def short_line() -> None:
    assert Table.read(io.StringIO("a,b\n1,2\n3\n")).column("b").to_list() == [2, None]


@case
def index_column() -> None:
    refused("'user'", "reset_index", make=lambda: Schema.fit(pd.DataFrame(BASE).set_index("user"), ROLES))


@case
def uneven_steps() -> None:
    months = [datetime.date(2024, m, 1) for m in (1, 3, 4, 6, 9, 12)]
    noted(fitted(Roles("day", "city", "temp", time="day"), DAYS, day=months, lags=1), "uneven")


@case
def clock_change() -> None:
    midnight = pl.Series(
        [datetime.datetime(2024, 3, d) for d in (30, 30, 31, 31)] + [datetime.datetime(2024, 4, 1)] * 2
    )
    groups = fitted(DAILY, DAYS, day=midnight.dt.replace_time_zone("Europe/Paris"), lags=1)
    noted(groups, "1 day", "1 have no lag 1")


@case
def not_a_table() -> None:
    for thing in (3, np.zeros((2, 2)), [1, 2], None):
        refused("pandas", type(thing).__name__, make=lambda thing=thing: Table.read(thing))
