"""Where two families are plausible, groups that are left out decide: under which is a linear model of them likelier?

Both are densities of the same values in the table's units, so that their scores compare.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from efattn import families
from efattn.errors import EfattnError
from efattn.estimators.blueprint import Blueprint, mean_log_jacobian, split
from efattn.estimators.families import POSITIVE, Choice
from efattn.families import Family, Product
from efattn.network import Context
from efattn.simple import LinearModel

HELD, SPLITS = 0.25, 3  # share left out, and how often
LARGE = 500_000  # rows times items, from which on what each item looks like on its own decides
SECONDS, GROUPS = 4.0, 1000  # how long each fit may take, and how many groups are looked at


def decided(draft: Blueprint, context: Context, standardise: str, seed: int) -> tuple[Choice, ...]:
    """The draft's choices, with the family that groups left out like best where it was open: positive numbers."""
    if len(draft.choices) != 1 or draft.choices[0].why is None or draft.choices[0].family.name not in POSITIVE:
        return draft.choices
    groups, column = draft.groups, draft.choices[0].columns[0]
    assert groups is not None
    seen = groups.value[:, 0] if groups.value is not None else np.zeros(0)
    seen = seen[np.isfinite(seen)]
    if len(groups.rows) * max(draft.items, 1) > LARGE:
        return draft.choices
    if not seen.size or not families.Gamma.support.contains(seen).all() or len(groups) < 2 or seen.min() == seen.max():
        return draft.choices
    candidates = [families.named(name) for name in POSITIVE]
    splits = [_scores(draft, candidates, context, standardise, seed + k) for k in range(SPLITS)]
    known = [scores for scores in splits if scores is not None]
    if not known:
        return draft.choices
    scores = np.mean(known, 0)
    best = int(np.argmax(scores))
    told = " against ".join(f"{scores[k]:.3f} ({candidates[k].name})" for k in (best, 1 - best))
    return (Choice(candidates[best], (column,), f"positive; groups left out have {told} nats a value"),)


def _scores(
    draft: Blueprint, candidates: Sequence[Family], context: Context, standardise: str, seed: int
) -> list[float] | None:
    """Of each, per value of the groups left out; None where one cannot be fitted."""
    groups = draft.groups
    assert groups is not None
    if len(groups) > GROUPS:
        groups = groups.subset(np.sort(np.random.default_rng(seed).permutation(len(groups))[:GROUPS]))
    scores = []
    for family in candidates:
        try:
            mine = split(replace(draft, family=Product((family,)), groups=groups), HELD, seed, standardise)
            assert mine.train is not None
            assert mine.held is not None
            model = LinearModel(seconds=SECONDS).build(mine.setting("value", context))
            model.fit(mine.train)  # type: ignore[operator]
            scores.append(float(model.score(mine.held)) + mean_log_jacobian(mine, mine.held))  # type: ignore[operator]
        except (EfattnError, ArithmeticError, RuntimeError, ValueError):
            return None
    return scores if np.isfinite(scores).all() else None
