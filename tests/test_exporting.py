"""Laws and scores for other libraries, which stand-ins play here: what they are given is what we say."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy import stats
from small import efa, ratings, weather

from efattn import DataError, families
from efattn.inference.distribution import Distribution
from efattn.inference.laws import Laws

TABLE = ratings(users=8)


class Made:
    def __init__(self, **given):
        self.given = given


@pytest.fixture
def skpro(monkeypatch):
    module = ModuleType("skpro.distributions")
    for name in ("Normal", "TDistribution", "Gamma", "LogNormal", "Exponential", "Beta", "Poisson",
                 "NegativeBinomial", "Binomial", "Mixture"):  # fmt: skip
        setattr(module, name, type(name, (Made,), {}))
    monkeypatch.setitem(sys.modules, "skpro", ModuleType("skpro"))
    monkeypatch.setitem(sys.modules, "skpro.distributions", module)


SCIPY = {
    "Normal": lambda mu, sigma: stats.norm(mu, sigma),
    "TDistribution": lambda mu, sigma, df: stats.t(df, mu, sigma),
    "Gamma": lambda alpha, beta: stats.gamma(alpha, scale=1 / beta),
    "LogNormal": lambda mu, sigma: stats.lognorm(sigma, scale=np.exp(mu)),
    "Exponential": lambda rate: stats.expon(scale=1 / rate),
    "Beta": lambda alpha, beta: stats.beta(alpha, beta),
    "Poisson": lambda mu: stats.poisson(mu),
    "NegativeBinomial": lambda mu, alpha: stats.nbinom(alpha, alpha / (alpha + mu)),
    "Binomial": lambda n, p: stats.binom(n, p),
}
EXPORTED = [
    families.Gaussian(), families.Gaussian(variance=2.0), families.StudentT(), families.Gamma(), families.LogNormal(),
    families.Exponential(), families.Beta(), families.Poisson(), families.NegativeBinomial(),
    families.Binomial(trials=4),
]  # fmt: skip


def laws(family, rows=3, shares=(1.0,), scale=1.0, centre=0.0):
    generator = torch.Generator().manual_seed(0)
    outputs = tuple(torch.randn(rows, family.size, generator=generator, dtype=torch.float64) / 2 for _ in shares)
    inside = Laws(family, outputs, torch.tensor(shares, dtype=torch.float64).expand(rows, -1))
    ones = np.ones(rows)
    place = (centre * ones, scale * ones, np.nan * ones, ones > 0, np.arange(rows))
    return Distribution("y", ((np.arange(rows), inside),), *place)


def cdf_of(made, y):
    given = {name: np.array(x)[:, 0] for name, x in made.given.items() if name != "columns"}
    return SCIPY[type(made).__name__](**given).cdf(y)


@pytest.mark.parametrize("family", EXPORTED, ids=repr)
def test_skpro_is_given_the_same_law(family, skpro):
    scale, centre = (3.0, 5.0) if isinstance(family, families.Gaussian | families.StudentT) else (1.0, 0.0)
    law = laws(family, scale=scale, centre=centre)
    made = law.to_skpro()
    y = law.quantiles(0.7)
    assert made.given["columns"] == ["y"]
    assert np.allclose(cdf_of(made, y), law.cdf(y), atol=1e-9)


def test_a_mixture_stays_one(skpro):
    law = laws(families.Gaussian(), shares=(0.3, 0.0, 0.7))
    made = law.to_skpro()
    assert type(made).__name__ == "Mixture"
    assert made.given["weights"] == [0.3, 0.7]
    both = sum(w * cdf_of(one, 0.2) for w, (_, one) in zip([0.3, 0.7], made.given["distributions"], strict=True))
    assert np.allclose(both, law.cdf(0.2), atol=1e-9)


def test_what_skpro_has_not_is_said(skpro, monkeypatch):
    for family in (families.Ordinal(levels=3), families.Poisson(shift=1), families.ZeroOr()):
        with pytest.raises(DataError, match="skpro has no"):
            laws(family).to_skpro()
    law = laws(families.Gaussian(), shares=(0.5, 0.5))
    monkeypatch.setitem(sys.modules, "skpro.distributions", None)
    with pytest.raises(DataError, match="pip install skpro"):
        law.to_skpro()


@pytest.mark.parametrize("version", ["0.22.0", "1.2.0"])
def test_arviz_is_given_the_scores_of_rows(version, monkeypatch):
    arviz = ModuleType("arviz")
    arviz.__version__, arviz.from_dict = version, lambda data=None, **groups: groups if data is None else data
    monkeypatch.setitem(sys.modules, "arviz", arviz)
    table = weather(days=6)
    model = efa().fit(table, group="day", item="station", value="tmax")
    made = model.to_arviz(table)
    wanted = model.log_likelihood(table)["tmax_log_likelihood"].to_numpy()
    assert np.array_equal(made["log_likelihood"]["tmax"], wanted[None, None])
    assert np.array_equal(made["observed_data"]["tmax"], table["tmax"].to_numpy())
    assert made["log_likelihood"]["tmax"].mean() == pytest.approx(model.score(table))


def test_without_arviz_the_way_to_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    model = efa().fit(TABLE, group="user", item="movie")
    with pytest.raises(DataError, match="pip install arviz"):
        model.to_arviz(TABLE)
