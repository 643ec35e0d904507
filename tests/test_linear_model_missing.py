"""The penalised linear model, where some of what a row sees is missing."""

import numpy as np
import polars as pl
import torch
from small import days

from efattn import SimpleModel, simple
from efattn.simple import linear_features


def test_what_is_missing_is_expected_from_what_is_there():
    """As a Gaussian by hand has it; what is not wanted stays as it is."""
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(4, 4))
    together, x = torch.tensor(loadings @ loadings.T), torch.tensor(rng.normal(size=(5, 4)))
    seen, wanted = torch.tensor(rng.random((5, 4)) < 0.6), torch.tensor([True, True, True, False])
    answer = linear_features.completed(x * seen, seen, wanted.expand(5, 4), together)
    for row, mask, got in zip(x, seen, answer, strict=True):
        there = mask.nonzero()[:, 0]
        expected = torch.where(mask, row, 0.0)
        for cell in ((~mask) & wanted).nonzero()[:, 0]:
            weights = torch.linalg.solve(together[there][:, there], together[there, cell])
            expected[cell] = weights @ row[there]
        torch.testing.assert_close(got, expected)


def test_missing_cells_cost_what_they_must():
    """Half of the cells gone, and the error is not far from that of the Gaussian which drew them."""
    roles = {"group": "g", "item": "i", "value": "y"}
    new, hidden = days(seed=1), np.random.default_rng(2).random(1200) < 0.5
    asked = new.with_columns(y=pl.when(pl.Series(hidden)).then(None).otherwise(pl.col("y")))
    errors = []
    for recipe in (simple.LinearModel(), simple.GaussianConditional(weight=0.05)):
        model = SimpleModel(recipe, family="gaussian").fit(days(), **roles, progress=False)
        errors.append(float(((model.predict(asked)["y_mean"] - new["y"]) ** 2).mean()))
    assert errors[0] < 1.15 * errors[1]


def test_a_missing_cell_is_never_filled_in_with_the_target():
    """Rows whose own value changes say the same of themselves, with others missing."""
    frame = days(40).with_columns(y=pl.when(pl.col("i") == 2).then(None).otherwise(pl.col("y")))
    model = SimpleModel(simple.LinearModel(), family="gaussian").fit(
        days(), group="g", item="i", value="y", progress=False
    )
    other = frame.with_columns(y=pl.when(pl.col("i") == 0).then(pl.col("y") + 3).otherwise(pl.col("y")))
    here, there = (model.predict(x).filter(pl.col("i") == 0)["y_mean"].to_numpy() for x in (frame, other))
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)
