"""Pictures are drawn straight from a fitted model and a table, whatever the names in it are."""

import numpy as np
import polars as pl
import pytest
from small import efa, latent, ratings, weather
from test_plots import PNG, png

from efattn import DataError, SimpleModel, plots, simple
from efattn.plots import items, style

RATINGS, WEATHER = ratings(), weather()
HOLES = WEATHER.with_columns(tmax=pl.when(pl.int_range(pl.len()) % 4 == 1).then(None).otherwise("tmax"))
PLACED = {"group": "day", "item": "station", "value": "tmax", "attributes": ["latitude", "longitude"]}
DAY = WEATHER.filter(pl.col("day") == 3)


@pytest.fixture(scope="module")
def placed():
    return efa(terms="value").fit(WEATHER, **PLACED)


@pytest.fixture(scope="module")
def both():
    return efa(companions=simple.ShrunkMean(), ensemble=2).fit(RATINGS, group="user", item="movie", value="rating")


DRAWN = {
    "item map": lambda m: plots.item_map(m, marked=[m.schema_.vocabulary.names[0]]),
    "similar items": lambda m: plots.similar_items(m, m.schema_.vocabulary.names[0], 3),
    "shares": plots.shares,
    "predictions": lambda m: plots.predictions(m, RATINGS if "rating" in m.schema_.roles.of("value") else WEATHER),
    "attention map": lambda m: plots.attention_map(m, DAY),
    "of one place": lambda m: plots.attention_map(m, DAY, 2),
    "residual map": lambda m: plots.residual_map(m, WEATHER),
    "missing": lambda m: plots.missing(m, HOLES),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_model_of_places_becomes_every_picture(placed, name):
    shown = DRAWN[name](placed)
    assert png(shown).startswith(PNG)
    assert style.figure_of(shown).get_suptitle()


@pytest.mark.parametrize("name", ["similar items", "shares"])
def test_so_does_a_model_of_items_and_values(both, name):
    assert png(DRAWN[name](both)).startswith(PNG)


def test_what_cannot_be_drawn_is_told(both, placed):
    for draw in (plots.residual_map, plots.missing):
        with pytest.raises(DataError, match="There is no"):
            draw(both, RATINGS, "height")
    with pytest.raises(DataError, match="latitude and longitude"):
        plots.residual_map(both, RATINGS)
    with pytest.raises(DataError, match="no value"):
        plots.missing(placed, WEATHER.with_columns(tmax=pl.lit(None, pl.Float64)))
    with pytest.raises(DataError, match="no item vectors"):
        plots.item_map(SimpleModel(simple.ItemMean()).fit(WEATHER, **PLACED))


def test_a_latent_factor_model_has_a_map_of_items_too():
    model = latent().fit(RATINGS, group="user", item="movie")
    assert png(plots.item_map(model, "centre")).startswith(PNG)


def test_names_on_a_map_do_not_overlap():
    draw, figure = np.random.default_rng(0), style.page(5, 5, "t")
    axes = figure.add_subplot()
    items.scatter(axes, draw.normal(size=(300, 2)), [f"item {k}" for k in range(300)], np.arange(300) == 7)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) >= 20
    assert not any(one.overlaps(other) for k, one in enumerate(boxes) for other in boxes[:k])
    assert axes.texts[0].get_text() == "item 7"  # marked ones come first


def test_names_are_no_formulas_and_no_essays():
    names = ["$x^2$", "a\x1b[31m\nb", "日本語の商品", "x" * 90, "<script>"]
    table = RATINGS.with_columns(
        movie=pl.col("movie").replace(dict(zip([f"m{k}" for k in range(5)], names, strict=True)))
    )
    model = efa().fit(table, group="user", item="movie")
    one = table.filter(pl.col("user") == table["user"][0])
    for shown in (plots.item_map(model), plots.attention_heatmap(model.attention(one))):
        assert png(shown).startswith(PNG)  # warnings are errors here
    assert style.label("x" * 90).endswith("…")
    assert style.label("a\nb") == "a b"
    assert style.label("$5") == r"\$5"


def test_values_of_few_levels_are_shown_by_level(both):
    axes = DRAWN["predictions"](both)
    assert [float(tick.get_text()) for tick in axes.get_yticklabels()] == sorted(RATINGS["rating"].unique())


def test_missing_cells_are_counted(placed):
    left, right = plots.missing(placed, HOLES)
    (cells,) = left.get_images()
    assert int((cells.get_array() == 2).sum()) == HOLES["tmax"].null_count()
    assert right.get_legend_handles_labels()[1] == ["observed", "filled in, means"]
