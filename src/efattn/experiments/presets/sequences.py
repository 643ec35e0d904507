"""MovieLens sequences: which of 50 movies a user rates next, or besides."""

from typing import Any

from efattn import datasets
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import Context, adam, best, item_entries, papers
from efattn.experiments.settings import CROSS_ENTROPY, Setting, Split, random_users

ROLES: dict[str, Any] = {"group": "user", "item": "movie", "order": "timestamp"}
PAPER = {"past": (3.534, 3.444), "others": (3.566, 3.483)}
AIM = {"past": 3.09, "others": 2.65}
TRAINING = adam(2000, 10)
BEST: dict[str, dict[str, Any]] = {
    "past": {"dropout": 0.4, "hide": 0.8, "ensemble": 5, "own_time": "known"},
    "others": {"dropout": 0.3, "hide": 0.8, "ensemble": 3},
}


def split(seed: int) -> Split:
    return random_users(datasets.movielens_sequences(), seed)


def _setting(context: Context) -> Setting:
    entries = (
        *item_entries(context, PAPER[context], TRAINING, times=True),
        papers("EFA, distinct", None, TRAINING, context=context, terms="item", support="distinct"),
        best(context=context, terms="item", **BEST[context]),
        best("EFA, order alone", context=context, terms="item", gaps=False, **BEST[context]),
    )
    known: dict[str, Any] = {"moving": True, "aim": AIM[context], "notes": notes.SEQUENCES, "seconds": 60.0}
    return Setting("sequences", context, split, ROLES, CROSS_ENTROPY, entries, **known)


SETTINGS = (_setting("past"), _setting("others"))
