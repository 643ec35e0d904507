"""Pictures have a title, labelled axes and as many marks as there is to show, and become PNG files."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from small import efa, ratings

from efattn import DataError, plots
from efattn.inference import AttentionWeights
from efattn.plots import style

PNG = b"\x89PNG\r\n\x1a\n"


def attention(layers=2, heads=3, size=4, lags=0):
    weights = np.random.default_rng(0).random((layers, heads, size, size + lags))
    weights /= weights.sum(-1, keepdims=True)
    names = [f"m{k}" for k in range(size)]
    return AttentionWeights(weights, names, [*names, *names[:lags]], [0] * size + [1] * lags)


def png(drawn):
    return style.as_png(style.figure_of(drawn), 40)


def panels(drawn):
    return drawn if isinstance(drawn, plots.Panels) else (drawn,)


def drawn(name):
    """Each kind of picture once."""
    draw = np.random.default_rng(0)
    x, y, v = draw.uniform(-100, -80, 12), draw.uniform(30, 45, 12), draw.normal(size=12)
    if name == "attention":
        return plots.attention_heatmap(attention())
    if name == "scatter":
        return plots.predicted_against_actual(v, v + 0.1)
    if name == "dense":
        y = draw.normal(size=5000)
        return plots.predicted_against_actual(y, y + draw.normal(size=5000))
    if name == "cases":
        return plots.predicted_by_case(
            {"a": 1.0, "b": 2.0}, {"one": {"a": v, "b": v}, "two": {"a": v, "b": []}}, title="t"
        )
    if name == "map":
        return plots.station_map(x, y, {"value": v, "miss": v}, errors=["miss"], places={"P": (-90, 40)}, title="t")
    if name == "listening":
        return plots.listening_map(x, y, np.abs(v), 3, title="t")
    if name == "distance":
        far, weights = np.repeat([-2, -1, 1], 4), draw.random((12, 2, 2))
        return plots.attention_by_distance(
            {"p": (far, weights)}, title="t", across="far", shade={"p": (-2, 0)}, shaded="s"
        )
    model = efa(terms="value").fit(ratings(), group="user", item="movie", value="real")
    return plots.history(model)


ALL = ("attention", "scatter", "dense", "cases", "map", "listening", "distance", "history")


@pytest.mark.parametrize("name", ALL)
def test_a_picture_has_a_title_and_becomes_a_png(name):
    before = dict(matplotlib.rcParams)
    shown = drawn(name)
    assert all(isinstance(one, matplotlib.axes.Axes) for one in panels(shown))
    assert style.figure_of(shown).get_suptitle()
    assert png(shown).startswith(PNG)
    assert shown._repr_png_().startswith(PNG)  # what a notebook shows
    assert dict(matplotlib.rcParams) == before  # the caller's settings are left alone


@pytest.mark.parametrize("name", sorted(set(ALL) - {"map", "listening"}))
def test_axes_are_labelled(name):
    axes = panels(drawn(name))[0]
    assert axes.get_xlabel()
    assert axes.get_ylabel() or name == "cases"


@pytest.mark.parametrize(("by", "count"), [("mean", 1), ("layer", 2), ("head", 6)])
def test_attention_is_shown_whole_or_by_layer_or_by_head(by, count):
    maps = panels(plots.attention_heatmap(attention(lags=1), by=by))
    assert len(maps) == count
    assert [t.get_text() for t in maps[0].get_xticklabels()] == ["m0", "m1", "m2", "m3", "m0, 1 earlier"]
    assert len(maps[0].texts) == 4 * 5  # each weight in figures


def test_a_large_group_is_shown_without_figures_and_with_few_labels():
    axes = plots.attention_heatmap(attention(size=90))
    assert not axes.texts
    assert 20 <= len(axes.get_xticks()) <= 50


def test_a_map_has_a_dot_per_station_and_a_line_per_other():
    maps = drawn("map")
    assert len(maps) == 2
    assert [len(axes.collections[-1].get_offsets()) for axes in maps] == [12, 12]
    low, high = maps[1].collections[-1].get_clim()
    assert low == -high  # errors: centred on zero
    lines, dots, star = drawn("listening").collections
    assert (len(lines.get_segments()), len(dots.get_offsets()), len(star.get_offsets())) == (11, 11, 1)


def test_history_shows_training_and_held_out_groups():
    axes = drawn("history")
    assert [line.get_label() for line in axes.lines] == ["training", "held out"]
    assert all(len(line.get_xdata()) == 2 for line in axes.lines)


def test_wrong_arrays_are_told():
    with pytest.raises(DataError, match="one length"):
        plots.predicted_against_actual([1.0], [1.0, 2.0])
    with pytest.raises(DataError, match="no row"):
        plots.predicted_against_actual([np.nan], [1.0])
    with pytest.raises(DataError, match="one length"):
        plots.station_map([1.0], [1.0, 2.0], {"v": [1.0]}, title="t")
    with pytest.raises(DataError, match="one per station"):
        plots.listening_map([1.0, 2.0], [1.0, 2.0], [1.0], 0, title="t")
    with pytest.raises(DataError, match="by is"):
        plots.attention_heatmap(attention(), by="row")


def test_saving_leaves_a_whole_file_or_none(tmp_path):
    plots.save(drawn("scatter"), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    with pytest.raises(DataError, match="cannot be written"):
        plots.save(drawn("scatter"), tmp_path / "none" / "a.png")
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_importing_plots_loads_no_matplotlib():
    code = "import sys, efattn.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
