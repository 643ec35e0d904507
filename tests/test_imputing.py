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


def test_draws_of_one_lot_count_as_one():
    def lot(table, seed, *errors):
        names = ("EFA", "forest", "mean")
        about = {"table": table, "way": "MCAR", "rate": 0.1, "seed": seed, "seconds": 1.0}
        return [{**about, "imputer": name, "error": error} for name, error in zip(names, errors, strict=True)]

    told = imputing.summary([*lot("iris", 0, 1, 2, 3), *lot("iris", 1, 1, 2, 3), *lot("wine", 0, 2, 1, 2)])
    assert {one["imputer"]: (one["lots"], one["draws"], one["rank"], one["ratio"]) for one in told} == {
        "forest": (2, 3, 1.5, 1.5),
        "EFA": (2, 3, 1.75, 1.5),
        "mean": (2, 3, 2.75, 2.5),
    }


def test_lots_that_ran_apart_are_joined_and_finished_ones_are_not_run_again(tmp_path, capsys):
    few = ["--tables", "iris", "--ways", "MCAR", "--rates", "0.1", "--imputers", "nearest", "mean"]
    for seed in ("0", "1"):
        imputing.main([*few, "--seeds", seed, "-o", str(tmp_path / f"{seed}.json")])
    page, both = tmp_path / "page.md", tmp_path / "both.json"
    page.write_text("before\n" + "\nold\n".join(imputing.MARKS) + "\nafter\n")
    imputing.main(["--join", *map(str, tmp_path.glob("[01].json")), "-o", str(both), "--page", str(page)])
    runs = imputing.read(both)
    assert [(run["seed"], run["imputer"]) for run in runs] == [(0, "nearest"), (0, "mean"), (1, "nearest"), (1, "mean")]
    assert page.read_text().startswith("before\n" + imputing.MARKS[0] + "\n" + imputing.markdown(runs))
    assert page.read_text().endswith(imputing.MARKS[1] + "\nafter\n")
    capsys.readouterr()
    imputing.main([*few, "--seeds", "0", "1", "-o", str(both)])
    assert capsys.readouterr().out.startswith("| table |")


def test_the_page_shows_the_result_file():
    runs = json.loads((HOME / "results/imputing.json").read_text())["runs"]
    page = (HOME / "docs/imputation.md").read_text()
    assert f"{imputing.markdown(runs)}\n\n{imputing.words(runs)}" in page
