"""How ordered levels follow from the moments of a simple model, learnt from groups that it was fitted without.

    training groups in three parts   ->   moments of each by a fit to the others   ->   cut-points (simple/levels.py)

A model knows the rows it was fitted to too well: ratings of movies that few have rated are predicted with three
quarters of the error that new users' have.
"""

from dataclasses import replace

from efattn.data import Groups
from efattn.data.folds import parts_in_turn
from efattn.errors import FAILURES
from efattn.models import Conditionals
from efattn.simple import Recipe, Setting
from efattn.simple.base import MeanAndVariance
from efattn.simple.levels import Predicted

FOLDS, ENOUGH = 3, 50_000  # rows


def learn(recipe: Recipe, model: Conditionals, setting: Setting, groups: Groups) -> None:
    """model: what the recipe built, fitted to the groups. Where parts of them are too little to be fitted to, the
    family's own way with moments stays."""
    if not isinstance(model, MeanAndVariance) or not model.part.cut_points:
        return
    parts = list[Predicted]()
    try:
        mine = replace(recipe, **model.chosen_options())  # type: ignore[type-var]
        if hasattr(mine, "seconds"):  # all of them take as long as one may
            mine = replace(mine, seconds=mine.seconds / FOLDS)  # type: ignore[type-var]
        for known, left in parts_in_turn(groups, FOLDS):
            one = mine.build(setting)
            assert isinstance(one, MeanAndVariance)
            one.fit(known)
            parts.append(one.predicted(left))
            if sum(len(part.y) for part in parts) > ENOUGH:
                break
        model.learn_levels(Predicted.joined(parts))
    except FAILURES:
        return
