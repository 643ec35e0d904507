"""The experiments: every setting with every model in it, in the paper's order, then what it does not have."""

from efattn.experiments.presets import beyond, cities, groceries, ratings, recommending, sequences, synthetic, unseen
from efattn.experiments.settings import Setting

OF_THE_PAPER: tuple[Setting, ...] = (
    *synthetic.SETTINGS,
    *sequences.SETTINGS,
    *ratings.SETTINGS,
    *groceries.SETTINGS,
    *cities.SETTINGS,
)
BEYOND: tuple[Setting, ...] = (*beyond.SETTINGS, *unseen.SETTINGS, *recommending.SETTINGS)
SETTINGS: tuple[Setting, ...] = (*OF_THE_PAPER, *BEYOND)
EXPERIMENTS: tuple[str, ...] = tuple(dict.fromkeys(setting.experiment for setting in SETTINGS))
