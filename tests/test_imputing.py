"""The comparison of imputers: cells are hidden as it says, and the page shows what the file has."""

import json
from pathlib import Path

import numpy as np
import pytest

from efattn.experiments import imputing

HOME = Path(__file__).parent.parent


@pytest.mark.parametrize("way", imputing.WAYS)
@pytest.mark.parametrize("rate", imputing.RATES)
def test_about_as_many_cells_are_hidden_as_asked_for(way, rate):
    x = imputing.table("wine")
    gone = imputing.hidden(x, way, rate, 0)
    assert gone.mean() == pytest.approx(rate, abs=0.04)
    assert not gone.all(1).any()
    assert (imputing.hidden(x, way, rate, 0) == gone).all()
    if way == "stations":
        assert not gone[: len(x) // 2].any()
        assert set(gone[len(x) // 2 :].mean(0)) == {0.0, 1.0}
        return
    higher = np.mean([x[gone[:, k], k].mean() > x[~gone[:, k], k].mean() for k in range(1, x.shape[1])])
    assert higher == 1 or way != "MNAR"
    assert not gone[:, 0].any() or way != "MAR"


def test_weather_is_complete_with_a_row_a_day_and_a_column_a_place():
    x = imputing.table("NOAA")
    assert x.shape == (136, imputing.STATIONS)
    assert np.isfinite(x).all()


def test_peers_fill_everything():
    x = imputing.table("iris")
    gone = imputing.hidden(x, "MCAR", 0.1, 0)
    for name in ("nearest", "mean"):
        filled = imputing.peer(name, 0)(np.where(gone, np.nan, x))
        np.testing.assert_allclose(filled[~gone], x[~gone])
        assert np.isfinite(filled).all()


def test_the_page_shows_the_result_file():
    runs = json.loads((HOME / "results/imputing.json").read_text())["runs"]
    page = (HOME / "docs/imputation.md").read_text()
    assert imputing.markdown(runs) in page
    for one in imputing.summary(runs):
        assert f"{one['rank']:.2f} ({one['imputer']})" in page
