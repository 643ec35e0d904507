"""A family added by one class is a family like ours: by name, in every verb, in a file."""

import numpy as np
import polars as pl
import pytest
from rayleigh import Rayleigh
from small import QUICK, efa

import efattn
from efattn import DataError, families


@pytest.fixture(scope="module")
def winds():
    draw = np.random.default_rng(0)
    day, place = (x.ravel() for x in np.meshgrid(np.arange(30), np.arange(4), indexing="ij"))
    speed = draw.rayleigh(np.exp(0.3 * place + draw.normal(0, 0.3, 30)[day]))
    return pl.DataFrame({"day": day, "place": place, "speed": speed})


def test_it_goes_through_every_verb_and_a_file(winds, tmp_path):
    model = efa(family=Rayleigh(), terms="value").fit(winds, group="day", item="place", value="speed")
    assert model.family_.parts == (Rayleigh(),)
    assert np.isfinite(model.score(winds))
    told = model.predict(winds, interval=0.9)
    low, mean, high = (told[f"speed_{what}"].to_numpy() for what in ("lower", "mean", "upper"))
    assert (low > 0).all()
    assert (low < mean).all()
    assert (mean < high).all()
    model.save(tmp_path / "wind.efattn")
    again = efattn.load(tmp_path / "wind.efattn")
    assert again.family_ == model.family_
    assert again.score(winds) == model.score(winds)
    assert again.predict(winds, interval=0.9).equals(told)


def test_it_is_known_by_its_name():
    assert families.named("rayleigh") == families.from_json({"name": "rayleigh"}) == Rayleigh()
    assert Rayleigh in families.known()
    assert "rayleigh" in families.value_families()
    assert families.known()[: len(families.FAMILIES)] == families.FAMILIES
    with pytest.raises(DataError, match=r"'gumbel'.*known once its class is defined"):
        families.from_json({"name": "gumbel"})


def test_several_members_have_quantiles_of_it(winds):
    model = efa(family="rayleigh", terms="value", ensemble=2, training=QUICK)
    told = model.fit(winds, group="day", item="place", value="speed").predict(winds, interval=0.5)
    assert (told["speed_lower"] < told["speed_upper"]).all()
