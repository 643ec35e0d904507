"""What the data layer promises, seen from a fitted model."""

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import efattn
from efattn import EFA, DataError, Training
from efattn.data import Table
from efattn.errors import EfattnWarning

QUICK = {"width": 4, "training": Training(epochs=2, tokens=30, device="cpu")}
ALONE = {**QUICK, "companions": None, "refit": False}


def table(seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(30), 4)
    columns = {"user": [f"u{g}" for g in group], "item": np.tile(np.arange(4), 30), "y": rng.normal(size=120)}
    return pl.DataFrame({**columns, "sort": rng.choice(["red", "blue", "green"], 120), "at": rng.random(120)})


@pytest.mark.parametrize(
    ("roles", "options"), [({}, QUICK), ({"order": "at"}, ALONE), ({"attributes": ["sort", "at"]}, ALONE)]
)
def test_a_fit_does_not_depend_on_the_order_of_the_table(roles: dict[str, object], options: dict[str, Any]) -> None:
    known = {"group": "user", "item": "item", "value": "y", **roles}
    frame = table().head(60)
    one = EFA(**options).fit(frame, **known)
    two = EFA(**options).fit(frame.sample(fraction=1.0, shuffle=True, seed=3), **known)
    for name, x in one.model_.state_dict().items():
        assert torch.equal(x, two.model_.state_dict()[name]), name


def test_words_as_attributes_are_kept_with_the_model(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = EFA(terms="value", **ALONE).fit(table(), group="user", item="item", value="y", attributes=["sort", "at"])
    assert model.schema_.attribute_names == ("sort=blue", "sort=green", "sort=red", "at")
    model.save(tmp_path / "m.efattn")
    one, two = (m.predict(table(1))["y_mean"] for m in (model, efattn.load(tmp_path / "m.efattn")))
    assert one.equals(two)
    odd = table(1).with_columns(sort=pl.lit("violet"))
    with pytest.warns(EfattnWarning, match="'violet' at row 0"):
        assert model.predict(odd)["y_mean"].is_finite().all()


@pytest.mark.parametrize("fill", [9.97e36, 1e20, 1e308])
def test_a_fill_value_is_an_error_and_never_nan(fill: float) -> None:
    model = EFA(**ALONE).fit(table(), group="user", item="item", value="y")
    odd = table(1).with_columns(y=pl.when(pl.int_range(pl.len()) == 17).then(fill).otherwise("y"))
    for verb in (model.score, model.predict, model.log_likelihood):
        with pytest.raises(DataError, match="row 17") as error:
            verb(odd)
        assert (error.value.column, error.value.row) == ("y", 17)
    with pytest.raises(DataError, match="row 1017"):
        model.predict(Table.read(odd, first_row=1000))
