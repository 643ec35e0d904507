"""A role that nothing looks at is said, never passed over."""

import polars as pl
import pytest
from small import efa, latent, ratings

from efattn import EfattnWarning

TABLE = ratings().with_columns(age=pl.int_range(pl.len()) % 5)
ITEMS = {"group": "user", "item": "movie"}


def test_an_exposure_without_values_is_a_warning():
    with pytest.warns(EfattnWarning, match="'hours' .role exposure. has no effect"):
        efa().fit(TABLE, **ITEMS, exposure="hours")


def test_attributes_of_items_of_a_latent_factor_model_are_a_warning():
    with pytest.warns(EfattnWarning, match="'age' .role attributes. has no effect"):
        latent().fit(TABLE, **ITEMS, attributes="age")


def test_a_time_without_lags_is_a_note():
    model = efa().fit(TABLE.with_columns(day=pl.col("user").rank("dense")), **ITEMS, time="day")
    assert any(note.kind == "unused role" and note.column == "day" for note in model.notes_)
