"""What intervals hold after calibration: counted as it says, and the page shows what the file has."""

import json
from pathlib import Path

import numpy as np
import torch

from efattn.experiments import covering
from efattn.families import Gaussian
from efattn.inference.distribution import Distribution
from efattn.inference.laws import Laws

HOME = Path(__file__).parent.parent


def laws(seed, rows=4000):
    draw, ones, item = np.random.default_rng(seed), np.ones(rows), np.arange(rows) % 20
    inside = Laws(Gaussian(), (torch.zeros(rows, 2, dtype=torch.float64),), torch.ones(rows, 1, dtype=torch.float64))
    return Distribution("y", ((np.arange(rows), inside),), 0 * ones, ones, draw.normal(size=rows), ones > 0, item, item)


WEEKS = np.arange(4000) // 40


def test_intervals_of_the_right_law_hold_what_they_promise():
    told = covering.covers((laws(0), WEEKS))
    assert [one["level"] for one in told] == [0.5, 0.8, 0.9, 0.95]
    assert all(abs(one["z"]) < 3 and one["error"] < 0.02 for one in told)
    low, high = covering.by_item(laws(0))
    assert 0.8 < low < 0.9 < high < 1


def test_what_was_calibrated_by_adds_its_own_error():
    asked, by = (laws(0), WEEKS), (laws(1), WEEKS)
    one, other, both = covering.covers(asked), covering.covers(by), covering.covers(asked, by=by)
    for x, y, z in zip(one, other, both, strict=True):
        assert z["cover"] == x["cover"]
        np.testing.assert_allclose(z["error"], np.hypot(x["error"], y["error"]), atol=2e-4)


def test_calibrated_intervals_hold_what_they_promise_within_two_standard_errors():
    for run in json.loads((HOME / "results/covering.json").read_text())["runs"]:
        assert all(abs(one["z"]) < 2 for one in run["after"]), run["set"]


def test_the_page_shows_the_result_file():
    runs = json.loads((HOME / "results/covering.json").read_text())["runs"]
    assert covering.markdown(runs) in (HOME / "docs/distributions.md").read_text()
    assert {one["set"] for one in runs} <= set(covering.SETS)
