"""The experiments: every setting with every model in it, in the paper's order."""

from efattn.experiments.presets import cities, groceries, ratings, sequences, synthetic
from efattn.experiments.settings import Setting

SETTINGS: tuple[Setting, ...] = (
    *synthetic.SETTINGS,
    *sequences.SETTINGS,
    *ratings.SETTINGS,
    *groceries.SETTINGS,
    *cities.SETTINGS,
)
EXPERIMENTS: tuple[str, ...] = tuple(dict.fromkeys(setting.experiment for setting in SETTINGS))
