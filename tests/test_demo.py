"""The demos run from end to end, leave what they say, and reach what the paper reached."""

import io

import polars as pl
import pytest
import torch
from rich.console import Console
from shell import efattn as command

import efattn
from efattn import DataError
from efattn.experiments import demo

FILES = {
    "synthetic": ["order-effects.png", "attention-past.png", "attention-others.png", "synthetic.efattn", "test.csv"],
    "weather": ["one-day.png", "listening.png", "predictions.png", "weather.efattn", "test.csv"],
}


def run(name, folder, **sizes):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    found = demo.run(name, folder, console=console, **sizes)
    return found, console.file.getvalue()


@pytest.mark.parametrize("name", demo.NAMES)
def test_a_demo_leaves_a_model_a_table_and_pictures(name, tmp_path):
    threads, folder = torch.get_num_threads(), tmp_path / "new" / "folder"
    found, text = run(name, folder, epochs=1, users=200)
    assert found["files"] == FILES[name]
    assert sorted(p.name for p in folder.iterdir()) == sorted(FILES[name])
    for file in FILES[name]:
        assert file in text
        if file.endswith(".png"):
            assert (folder / file).read_bytes().startswith(b"\x89PNG")
    table = pl.read_csv(folder / "test.csv", try_parse_dates=True)
    value = {"synthetic": "rating", "weather": "tmean"}[name]
    told = efattn.load(folder / f"{name}.efattn").predict(table)
    assert told[f"{value}_mean"].is_not_null().all()
    assert "efattn predict" in text
    assert "efattn fit" in text
    assert "\x1b" not in text  # colours only on a terminal
    assert torch.get_num_threads() == threads


def test_a_demo_replaces_its_own_files_and_no_others(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "test.csv").write_text("old")
    run("synthetic", tmp_path, epochs=1, users=80)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "test.csv").read_text() != "old"


def test_wrong_names_sizes_and_folders_are_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="There is no demo 'none'"):
        run("none", tmp_path)
    with pytest.raises(DataError, match="is a file"):
        run("synthetic", tmp_path / "file")
    with pytest.raises(DataError, match="at least"):
        run("synthetic", tmp_path, users=2)


@pytest.mark.slow
def test_the_synthetic_demo_comes_close_to_the_best_possible(tmp_path):
    found = command("demo", "synthetic", "-o", "out", "--json", cwd=tmp_path).good().json()
    assert any(file.endswith(".png") for file in found["files"])
    for line in found["errors"]:
        if line["model"] == "EFA":
            assert line["error"] <= 1.04
        else:
            assert line["error"] > 2


@pytest.mark.slow
def test_the_weather_demo_beats_latent_factors(tmp_path):
    errors = command("demo", "weather", "-o", "out", "--json", cwd=tmp_path).good().json()["errors"]
    assert errors["EFA"] < errors["latent factors, five nearest"] < errors["station mean"]
