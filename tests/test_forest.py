"""Trees of what a Gaussian leaves: bends are found, straight lines stay, and each row walks to its own leaf."""

import numpy as np
import pytest
import torch

from efattn import EFA, SimpleModel, Training, simple
from efattn.simple.trees import LEAVES


def table(bent, rows=160, seed=0):
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(2, rows))
    return {"a": a, "b": b, "c": (a**2 if bent else a) + 0.3 * draw.normal(size=rows)}


def forest(**options):
    return SimpleModel(simple.Forest(trees=20, **options), family="gaussian")


@pytest.fixture(scope="module")
def both():
    new = table(True, seed=1)
    mine = forest().fit_wide(table(True), progress=False)
    gauss = SimpleModel(simple.GaussianConditional(), family="gaussian").fit_wide(table(True), progress=False)
    return new, mine, gauss


def test_a_bend_that_no_covariance_has_is_found(both):
    new, mine, gauss = both
    error = [np.mean((np.asarray(one.predict(new)["c_mean"]) - new["c"]) ** 2) for one in (mine, gauss)]
    assert error[0] < 0.35 * error[1]
    assert mine.score(new) > gauss.score(new) + 0.2


def test_where_all_is_straight_it_is_about_the_gaussian():
    new = table(False, seed=1)
    gauss = SimpleModel(simple.GaussianConditional(), family="gaussian").fit_wide(table(False), progress=False)
    assert forest().fit_wide(table(False), progress=False).score(new) > gauss.score(new) - 0.05


def test_a_row_gets_the_mean_of_the_leaves_it_walks_to(both):
    model = both[1].fitted_.members[0]["value"]
    tables = {name: model.get_buffer(name) for name in ("feature", "below", "threshold", "leaf")}
    x = torch.randn(7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    item = torch.tensor([0, 1, 2, 2, 1, 0, 2])

    def literal(row, j):
        leaves = []
        for tree in range(20):
            node = 0
            while (k := int(tables["feature"][j, tree, node])) >= 0:
                right = int(row[k].float() > tables["threshold"][j, tree, node])
                node = int(tables["below"][j, tree, node, right])
            leaves.append(tables["leaf"][j, tree, node].double())
        return torch.stack(leaves).mean(0)

    wanted = torch.stack([literal(row, int(j)) for row, j in zip(x, item, strict=True)])
    assert torch.allclose(model._said(x, item), wanted, atol=1e-12)
    assert tables["feature"].shape[2] == 2 * LEAVES - 1


def test_a_missing_cell_is_completed_and_not_taken_for_average(both):
    new, mine, _ = both
    holes = new | {"b": np.where(np.arange(160) % 2, np.nan, new["b"])}
    error = np.mean((np.asarray(mine.predict(holes)["c_mean"]) - new["c"]) ** 2)
    assert error < 0.5 * np.var(new["c"])


def test_it_is_offered_to_tables_of_rows_and_columns_alone():
    quick = EFA(training=Training(epochs=1), family="gaussian")
    wide = quick.fit_wide(table(True, rows=60), progress=False, validation=0.3)
    assert "Forest" in wide.fitted_.held_out["value"]
    few = EFA(training=Training(epochs=1), family="gaussian").fit_wide(table(True, rows=20), validation=0.3)
    assert "Forest" not in few.fitted_.held_out["value"]
