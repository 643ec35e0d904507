"""Columns of a row that are known inform its other ones: in closed form, through the mixture, and never themselves."""

import numpy as np
import polars as pl
import pytest
import torch
from small import efa, weather
from test_impute import punched
from test_wide import CELLS, TABLE

from efattn import DataError, families
from efattn.inference.cells import precision
from efattn.inference.given import informed

DAYS = weather(days=30)
BOTH = {"group": "day", "item": "station", "value": ["tmax", "tmin"]}


def test_columns_of_one_gaussian_follow_each_other_in_closed_form():
    part = families.MultivariateGaussian(3)
    family = families.Product((part,))
    f = torch.randn(5, family.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    covariance = torch.linalg.inv(-2 * part.natural(f)[:, 3:].unflatten(-1, (3, 3)))
    mean, y = part.mean(f), torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    known = y.clone()
    known[:, 1] = torch.nan
    (moved,), _ = informed(family, [f], [1.0], known)
    own, cross = covariance[:, [0, 2]][:, :, [0, 2]], covariance[:, 1, [0, 2]]
    slope = torch.linalg.solve(own, cross)
    torch.testing.assert_close(part.mean(moved)[:, 1], mean[:, 1] + (slope * (y - mean)[:, [0, 2]]).sum(-1))
    torch.testing.assert_close(part.variance(moved)[:, 1], covariance[:, 1, 1] - (slope * cross).sum(-1))


def test_a_row_that_lacks_columns_is_scored_by_the_law_of_the_rest():
    family, generator = families.MultivariateGaussian(3, "predicted"), torch.Generator().manual_seed(1)
    f = torch.randn(5, family.size, generator=generator, dtype=torch.float64, requires_grad=True)
    nan = float("nan")
    y = torch.tensor([[1, 2, 3], [1, nan, 3], [nan, nan, 3], [nan, 2, 3], [nan, nan, nan]], dtype=torch.float64)
    found = family.log_prob(f, y)
    covariance = torch.linalg.inv(precision(family, f))
    for k, row in enumerate(y):
        at = (~row.isnan()).nonzero()[:, 0]
        law = torch.distributions.MultivariateNormal(f[k, at], covariance[k][at][:, at]) if len(at) else None
        torch.testing.assert_close(found[k], law.log_prob(row[at]) if law else torch.zeros_like(found[k]))
    found.sum().backward()
    assert f.grad.isfinite().all()
    assert (f.grad[4] == 0).all()
    apart = family.start(torch.tensor([[1, nan, nan], [nan, 2, nan], [3, nan, nan], [nan, nan, 4.0]]))
    torch.testing.assert_close(family.mean(apart), torch.tensor([2.0, 2.0, 4.0], dtype=torch.float64))


def test_a_law_is_made_from_its_mean_and_covariance():
    part = families.MultivariateGaussian(3)
    f = torch.randn(4, part.size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    covariance = torch.linalg.inv(-2 * part.natural(f)[:, 3:].unflatten(-1, (3, 3)))
    torch.testing.assert_close(part.from_law(part.mean(f), covariance), f)


def test_parts_that_expected_what_is_known_count_for_more():
    family = families.Product((families.Gaussian(), families.Gaussian()))
    near, far = torch.zeros(1, 4, dtype=torch.float64), torch.zeros(1, 4, dtype=torch.float64)
    far[:, 0] = 3.0
    known = torch.tensor([[0.0, torch.nan]], dtype=torch.float64)
    _, shares = informed(family, [near, far], [0.5, 0.5], known)
    assert float(shares[0]) == pytest.approx(1 / (1 + np.exp(-4.5)))
    assert float(shares[0] + shares[1]) == pytest.approx(1)


@pytest.fixture(scope="module")
def fitted():
    return efa(family="multivariate_gaussian", terms="value").fit(DAYS, **BOTH, progress=False)


def test_a_known_column_informs_the_other_and_never_itself(fitted):
    moved = DAYS.with_columns(
        pl.when(pl.col("station") == 0).then(pl.col("tmin") + 5).otherwise(pl.col("tmin")).alias("tmin")
    )
    one, two = (fitted.predict(x, given="tmin").filter(pl.col("station") == 0) for x in (DAYS, moved))
    assert (two["tmax_mean"] > one["tmax_mean"] + 2).all()
    np.testing.assert_allclose(one["tmin_mean"], two["tmin_mean"], rtol=1e-4)
    without, plain = fitted.predict(DAYS, given=[]), fitted.predict(DAYS)
    assert without.equals(plain)
    assert (one["tmax_sd"] < plain.filter(pl.col("station") == 0)["tmax_sd"]).all()
    both = fitted.predict(DAYS, given=["tmax", "tmin"])
    np.testing.assert_allclose(both["tmax_mean"], fitted.predict(DAYS, given="tmin")["tmax_mean"], rtol=1e-5)


def test_a_row_that_lacks_one_column_is_imputed_from_the_other(fitted):
    holes = punched(DAYS, "tmax", rate=0.2)
    gone = holes["tmax"].is_null()
    filled, told = fitted.impute(holes), fitted.predict(holes, given="tmin")
    np.testing.assert_allclose(filled["tmax"].filter(gone), told["tmax_mean"].filter(gone), rtol=1e-5)
    drawn = np.stack([one["tmax"].filter(gone) for one in fitted.impute(holes, draws=20)])
    error = (drawn.mean(0) - filled["tmax"].filter(gone).to_numpy()) / filled["tmax_sd"].filter(gone).to_numpy()
    assert np.abs(error).max() < 1.5


def test_of_a_wide_table_only_what_is_given_is_looked_at():
    model = efa().fit_wide(TABLE, id="name", progress=False)
    others = [name for name in CELLS if name not in ("age", "smokes")]
    empty = TABLE.with_columns(pl.lit(None).cast(TABLE[name].dtype).alias(name) for name in others)
    one, two = model.predict(TABLE, given=["age", "smokes"]), model.predict(empty)
    np.testing.assert_allclose(one["visits_mean"], two["visits_mean"], rtol=1e-5)
    assert one["visits"].equals(TABLE["visits"])


@pytest.mark.parametrize("given", ["tmean", ["tmax", 3]])
def test_what_is_no_value_column_is_refused(fitted, given):
    with pytest.raises(DataError) as caught:
        fitted.predict(DAYS, given=given)
    assert caught.value.option == "given"
