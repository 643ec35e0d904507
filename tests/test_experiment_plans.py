"""What is planned: every run once, alone where it is asked for alone, and found again by its name."""

import json

import pytest
from shell import efattn

from efattn import DataError
from efattn.experiments import reproducing, runner
from efattn.experiments.presets import EXPERIMENTS, SETTINGS
from efattn.experiments.settings import FLOOR, PROTOCOLS


def test_everything_is_planned_once_per_seed_and_protocol_and_fixed_models_once_per_split():
    for seeds in (1, 3):
        want = sum(
            len(entry.protocols) * (1 if entry.fixed and not setting.moving else setting.splits or seeds)
            for setting in SETTINGS
            for entry in setting.entries
        )
        paths = [path for run in runner.planned(seeds=seeds) for path in run.paths]
        assert len(paths) == want
        assert len(set(paths)) == want, "two runs would write one file"


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_a_preset_and_a_protocol_are_planned_alone(experiment):
    preset = "defaults" if experiment in ("beyond", "recommending") else "paper"
    runs = runner.planned([experiment], [preset], 1)
    assert all(experiment in {setting.experiment for setting in run.settings} for run in runs)
    assert {run.setting_and_entry[1].preset for run in runs} == {preset}
    for protocol in PROTOCOLS if experiment != "recommending" else PROTOCOLS[:1]:
        runs = runner.planned([experiment], ["peer"], 1, protocols=[protocol])
        assert {run.protocol for run in runs} == {protocol}
        assert {run.setting_and_entry[1].preset for run in runs} == {"peer"}


def test_only_peers_and_defaults_are_refitted_and_the_floor_is_no_peer():
    again = {run.setting_and_entry[1] for run in runner.planned(seeds=1, protocols=["refitted"])}
    assert {entry.preset for entry in again} == {"peer", "defaults"}
    assert FLOOR not in {entry.model for entry in again}


def test_a_unit_is_found_again_by_its_name():
    for run in runner.planned(["beyond", "ratings"], ["defaults", "peer"], 2)[::7]:
        for path in run.paths:
            assert runner.named(str(path.with_suffix(""))) == run
    with pytest.raises(DataError, match="no run 'cities/no-lag/efa-first-0'"):
        runner.named("cities/no-lag/efa-first-0")


def test_fits_that_are_tested_twice_are_planned_once():
    runs = runner.planned(["beyond"], ["defaults"], 1, settings=["US cities, 30 % missing"])
    assert [run.setting_and_entry[0].title for run in runs] == ["cities, no lag"] * 2
    assert [path.parent.name for path in runs[0].paths] == ["no-lag"] + [f"us-cities-{k}-missing" for k in (10, 30, 50)]


def test_an_unknown_experiment_is_refused():
    with pytest.raises(DataError, match=r"no experiment 'citys'; there are synthetic"):
        runner.planned(["citys"])


def test_names_within_a_setting_are_unique():
    for setting in SETTINGS:
        names = [(entry.model, entry.preset) for entry in setting.entries]
        assert len(names) == len(set(names)), setting.title


def test_a_plan_says_what_is_missing_and_how_long_it_takes(tmp_path):
    asked = reproducing.Asked(["cities"], ["defaults"], 2, protocols=["refitted"])
    units = reproducing.plan(asked, tmp_path)
    assert len(units) == 6
    assert {one["done"] for one in units} == {False}
    assert all(one["seconds"] > 0 for one in units)
    for path in runner.named(units[0]["unit"]).paths:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("{}")
    assert [one["done"] for one in reproducing.plan(asked, tmp_path)] == [True] + [False] * 5


def test_the_plan_of_the_shell_is_that_of_python(tmp_path):
    done = efattn("reproduce", "sequences", "--preset", "peer", "--seeds", "1", "--plan", "--json", cwd=tmp_path).good()
    assert json.loads(done.out) == reproducing.plan(reproducing.Asked(["sequences"], ["peer"], 1), tmp_path / "results")
    assert not list(tmp_path.iterdir())
