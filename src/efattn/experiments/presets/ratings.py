"""MovieLens ratings 1, 2 and 3 as counts: y - 1 is Poisson (v1), or y is with a rate above 1 (v2)."""

from typing import Any

import numpy as np

from efattn import datasets, families, simple
from efattn.experiments.presets import notes
from efattn.experiments.presets.shared import Context, adam, best, latent, papers, untuned, value_peers
from efattn.experiments.settings import V1, V2, Setting, Split, random_users

ROLES: dict[str, Any] = {"group": "user", "item": "movie", "value": "rating", "order": "timestamp"}
FAMILY = {"v1": families.Poisson(shift=1), "v2": families.Poisson(link="softplus")}
PAPER = {
    ("v1", "others"): (0.971, 0.945),
    ("v1", "past"): (0.972, 0.953),
    ("v2", "others"): (0.507, 0.494),
    ("v2", "past"): (0.508, 0.499),
}
AIM = {("v1", "others"): 0.940, ("v1", "past"): 0.949, ("v2", "others"): 0.4945, ("v2", "past"): 0.4990}
MEANS = {  # the paper's mean predictions for actual ratings of 1, 2 and 3: latent factors, EFA
    ("v1", "others"): ((2.06, 2.10, 2.21), (1.93, 2.06, 2.30)),
    ("v1", "past"): ((2.06, 2.09, 2.20), (1.98, 2.09, 2.29)),
    ("v2", "others"): ((2.06, 2.10, 2.21), (1.94, 2.08, 2.31)),
    ("v2", "past"): ((2.06, 2.10, 2.20), (1.98, 2.09, 2.29)),
}
TRAINING = adam(1000, 10)


def split(seed: int) -> Split:
    return random_users(datasets.movielens_ratings(), seed)


def means_by_rating(estimator: Any, parts: Split) -> dict[str, Any]:
    """The mean prediction of rows with an actual rating of 1, 2 and 3."""
    told = estimator.predict(parts.test, interval=None)
    mean, y = told["rating_mean"].to_numpy(), told["rating"].to_numpy()
    return {"mean_by_rating": [float(np.mean(mean[y == rating])) for rating in (1, 2, 3)]}


def _setting(version: str, context: Context) -> Setting:
    fm, efa = PAPER[version, context]
    family = FAMILY[version]
    question: dict[str, Any] = {"family": family, "context": context, "terms": "value"}
    entries = (
        *value_peers(family, context),
        latent("latent factors", fm, TRAINING, **question),
        latent("latent factors, intercept", None, TRAINING, **question, intercept=True),
        papers("EFA", efa, TRAINING, **question, per_value=True),
        untuned(**question),
        best(**question, dropout=0.3, ensemble=2, companions=simple.GaussianConditional()),
    )
    metric, aim = V1 if version == "v1" else V2, AIM[version, context]
    known: dict[str, Any] = {
        "moving": True,
        "aim": aim,
        "look": means_by_rating,
        "notes": notes.RATINGS,
        "seconds": 30.0,
    }
    return Setting("ratings", f"{version}, {context}", split, ROLES, metric, entries, **known)


SETTINGS = tuple(_setting(version, context) for version in ("v1", "v2") for context in ("others", "past"))
