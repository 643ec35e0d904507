"""A fingerprint of groups changes with every field, and with names, parts, lags and pieces."""

from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest
from test_data_groups import many

from efattn.data import Roles, Schema
from efattn.data.groups import Observations


@pytest.mark.parametrize("name", [f.name for f in fields(Observations)])
def test_a_change_in_any_field_changes_the_fingerprint(name: str) -> None:
    table = (
        many().with_columns(pl.lit(1.0).alias(n) for n in "aewn").with_columns(t=True, o=pl.int_range(pl.len()) ** 2)
    )
    roles = Roles("g", "i", "y", "a", order="o", exposure="e", weight="w", target="t", noise="n")
    groups = Schema.fit_encode(table, roles, when=True)[1]
    assert groups.fingerprint() == Schema.fit_encode(table, roles, when=True)[1].fingerprint()
    column = getattr(groups.every, name).copy()
    column.flat[3] = ~column.flat[3] if column.dtype == bool else column.flat[3] + 1
    for changed in (column, column.astype(np.float32)):
        assert replace(groups, every=replace(groups.every, **{name: changed})).fingerprint() != groups.fingerprint()
    if name != "row":
        assert replace(groups, every=replace(groups.every, **{name: None})).fingerprint() != groups.fingerprint()


def test_a_change_of_names_parts_lags_or_pieces_changes_the_fingerprint() -> None:
    table = pl.DataFrame({"g": [1, 1, 2, 2, 3, 3], "i": list("abcabc"), "y": [1.0] * 6})
    roles = Roles("g", "i", "y", time="g")
    groups = Schema.fit_encode(table, roles)[1]
    others = [
        Schema.fit_encode(table.with_columns(i=pl.col("i").replace("c", "d")), roles)[1],
        Schema.fit_encode(table, roles, max_length=1)[1],
        Schema.fit_encode(table, roles, lags=1)[1],
        groups.subset(np.array([0, 1])),
        groups.subset(np.array([0, 2])),
        replace(groups, offsets=np.array([0, 1, 4, 6])),
    ]
    assert len({g.fingerprint() for g in (groups, *others)}) == 7
