"""Pictures from fitted objects: each function gives the Axes it drew, or `Panels`, several; `save` writes a PNG file.

    plots.save(plots.attention_heatmap(model.attention(one_group)), "attention.png")

of a model             history, shares, item_map, similar_items
of a model, a table    predictions, residual_map, attention_map, missing; generated, of two tables
of what verbs give     attention_heatmap, reliability, list_mass, differences
of arrays              predicted_against_actual, predicted_by_case, station_map, listening_map, heatmaps,
                       attention_by_distance

No pyplot and no global state: pictures are the same with or without a screen. matplotlib loads with the first one.
"""

from efattn.plots.comparing import differences
from efattn.plots.generated import generated
from efattn.plots.items import item_map, shares, similar_items
from efattn.plots.list_mass import list_mass
from efattn.plots.maps import attention_map, listening_map, residual_map, station_map
from efattn.plots.missing import missing
from efattn.plots.reliability import reliability
from efattn.plots.style import Panels, save
from efattn.plots.values import history, predicted_against_actual, predicted_by_case, predictions
from efattn.plots.weights import attention_by_distance, attention_heatmap, heatmaps

__all__ = [
    "Panels",
    "attention_by_distance",
    "attention_heatmap",
    "attention_map",
    "differences",
    "generated",
    "heatmaps",
    "history",
    "item_map",
    "list_mass",
    "listening_map",
    "missing",
    "predicted_against_actual",
    "predicted_by_case",
    "predictions",
    "reliability",
    "residual_map",
    "save",
    "shares",
    "similar_items",
    "station_map",
]
