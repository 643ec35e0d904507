"""Who is ahead of whom: differences of runs on equal rows, paired by group."""

from dataclasses import replace

import numpy as np
import pytest
from test_experiments import TINY, record

from efattn.experiments import summary
from efattn.experiments.settings import week


def test_the_paired_difference_is_that_of_a_hand_computation():
    rows = [1, 3]
    efa = [record("EFA", 0, [1.0, 2.0], rows), record("EFA", 1, [3.0, 2.0], rows)]
    peer = [record("item mean", 0, [2.0, 3.0], rows)]
    found = summary.paired(TINY, efa, peer)
    # by group, over seeds: (1 - 2 + 3 - 2) / 2 = 0 and (2 - 3 + 2 - 3) / 2 = -1; weights 1/4 and 3/4
    assert found["difference"] == pytest.approx(-0.75)
    # sqrt(((1/4 * 3/4)^2 + (3/4 * 1/4)^2) * 2 / 1)
    assert found["error"] == pytest.approx(np.sqrt(2 * (0.1875**2) * 2))
    assert found["groups"] == 2


def test_equal_weights_give_the_usual_standard_error():
    values = [0.3, -0.2, 0.9, 0.1]
    found = summary.paired(TINY, [record("EFA", 0, values, [2] * 4)], [record("item mean", 0, [0.0] * 4, [2] * 4)])
    assert found["error"] == pytest.approx(np.std(values, ddof=1) / 2)


def test_where_splits_move_seeds_are_paired_and_a_group_counts_once():
    moving = replace(TINY, moving=True)
    efa = [record("EFA", 0, [1.0, 2.0], [1, 1], ["a", "b"]), record("EFA", 1, [5.0], [2], ["b"])]
    efa.append(record("EFA", 2, [9.0], [1], ["c"]))
    peer = [record("item mean", 0, [2.0, 2.0], [1, 1], ["a", "b"]), record("item mean", 1, [3.0], [2], ["b"])]
    found = summary.paired(moving, efa, peer)
    assert found["groups"] == 2  # a: -1 in one row; b: (0 + 2 * 2) / 3 in three
    assert found["difference"] == pytest.approx((-1 + 0 + 2 * 2) / 4)
    assert found["error"] == pytest.approx(np.sqrt(((1.75 / 4) ** 2 + (3 / 4 * (4 / 3 - 0.75)) ** 2) * 2))


def test_runs_on_other_rows_are_not_compared():
    found = summary.paired(TINY, [record("EFA", 0, [1.0], [4])], [record("item mean", 0, [1.0, 2.0], [1, 3])])
    assert found == {"difference": None, "error": None, "groups": 0}
    assert summary.paired(TINY, [record("EFA", 0, [1.0], [4])], [])["groups"] == 0


def test_days_of_one_week_count_together():
    days = ["2017-10-01", "2017-10-02", "2017-10-09", "2017-10-10"]
    efa, peer = [1.0, 3.0, 2.0, 5.0], [0.0, 0.0, 1.0, 1.0]
    by_day = [[record(name, 0, x, [2] * 4, days)] for name, x in (("EFA", efa), ("item mean", peer))]
    weeks = [
        [record(name, 0, [(x[0] + x[1]) / 2, (x[2] + x[3]) / 2], [4, 4])] for name, x in (("EFA", efa), ("", peer))
    ]
    assert summary.paired(replace(TINY, block=week), *by_day) == summary.paired(TINY, *weeks)
    assert summary.paired(replace(TINY, block=week), *by_day)["groups"] == 2
    assert week("2019-12-31") == week("2020-01-01") == week("2019-12-29") != week("2019-12-28")
