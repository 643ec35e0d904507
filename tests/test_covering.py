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


def test_intervals_of_the_right_law_hold_what_they_promise():
    draw, rows = np.random.default_rng(0), 4000
    inside = Laws(Gaussian(), (torch.zeros(rows, 2, dtype=torch.float64),), torch.ones(rows, 1, dtype=torch.float64))
    ones = np.ones(rows)
    item = np.arange(rows) % 20
    law = Distribution("y", ((np.arange(rows), inside),), 0 * ones, ones, draw.normal(size=rows), ones > 0, item, item)
    told = covering.covers((law, np.arange(rows) // 40))
    assert [one["level"] for one in told] == [0.5, 0.8, 0.9, 0.95]
    assert all(abs(one["z"]) < 3 and one["error"] < 0.02 for one in told)
    low, high = covering.by_item(law)
    assert 0.8 < low < 0.9 < high < 1


def test_the_page_shows_the_result_file():
    runs = json.loads((HOME / "results/covering.json").read_text())["runs"]
    assert covering.markdown(runs) in (HOME / "docs/distributions.md").read_text()
    assert {one["set"] for one in runs} <= set(covering.SETS)
