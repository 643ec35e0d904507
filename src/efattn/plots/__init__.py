"""Pictures from fitted objects and arrays: each function gives a matplotlib Figure, `save` writes it as a PNG file.

    plots.save(plots.attention_heatmap(model.attention(one_group)), "attention.png")

No pyplot and no global state: pictures are the same with or without a screen. matplotlib loads with the first one.
"""

from efattn.plots.comparing import differences
from efattn.plots.list_mass import list_mass
from efattn.plots.maps import listening_map, station_map
from efattn.plots.reliability import reliability
from efattn.plots.style import save
from efattn.plots.values import history, predicted_against_actual, predicted_by_case
from efattn.plots.weights import attention_by_distance, attention_heatmap, heatmaps

__all__ = [
    "attention_by_distance",
    "attention_heatmap",
    "differences",
    "heatmaps",
    "history",
    "list_mass",
    "listening_map",
    "predicted_against_actual",
    "predicted_by_case",
    "reliability",
    "save",
    "station_map",
]
