"""Where several families are plausible, groups left out decide: under which is a linear model of them likelier?

    d_g = log p(group g | another) - log p(group g | the simplest so far),      another is better if  sum d > k sd(d)

or if it is so with the largest d cut: one value far out is hundreds of nats, and would else hide what it shows.

Rivals are densities, or probabilities, of the same values in the table's units, so that their scores compare. A family
with a parameter more has to be clearly better; one that has as many need not be (amounts that are gamma or log-normal,
counts of trials, a Weibull and a t law), nor one that contains another (Poisson laws are negative binomial ones). A
density with a zero that has a probability of its own is neither: where one is among the rivals, a zero is scored under
all of them as what it says, less than half the smallest amount, log P(Y <= half of it | f). How heavy tails are is
asked of the same groups once a law with heavy tails is chosen: what the column looks like without its context says
little about it.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from efattn.data import Groups
from efattn.errors import FAILURES
from efattn.estimators import companions
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.families import Choice
from efattn.estimators.holding_out import split
from efattn.estimators.looking import mean_log_jacobian
from efattn.families import Family, Product, StudentT
from efattn.models import Conditionals
from efattn.network import Context
from efattn.simple import DirectlyFitted, Forest, ItemMean, LinearModel, Recipe, TwoParts
from efattn.simple.at_positions import alike
from efattn.simple.linear_fit import CHOSEN, FIRST, SHIFTS, shifted
from efattn.simple.linear_model import PenalisedLinear
from efattn.simple.logs import suits
from efattn.simple.two_parts import law

HELD, SPLITS = 0.25, 3  # share left out, and how often
LARGE = 500_000  # rows looked at times items, from which on what each item looks like on its own decides
FEWEST = 8  # groups: of fewer, what is left out says more about the linear model than about the family
SECONDS, GROUPS, ROWS = 30.0, 1000, 1500  # how long it may take in all, and how many groups and rows are looked at
PENALTIES, STRONG = (100.0, 1.0), 10_000.0  # of the linear model, the better one; with fewer groups than items
CONTEXT = ("others", "extras", "by_item")  # what it is of; bends and what dispersions depend on stay where they start
FEW_TREES = 15  # of each item
RUNAWAY = 1.0  # nats a value by which means are better than a line that runs away
HEAVY = 0.02  # nats a value by which a law of heavy tails has to be better, besides
TAILS = ("student_t", "johnson")
CAREFUL = (*TAILS, "weibull")  # laws that have to be better by two standard errors
DEGREES = (3.0, 10.0)  # of freedom, besides those of the rival
NO_SIMPLER = {
    ("zero_or(gamma)", "zero_or(log_normal)"),
    ("poisson", "negative_binomial"),
    ("negative_binomial", "successes"),
    ("weibull", "student_t(5)"),
}
FAR = 5.0  # times the usual gain of a group, where larger ones are cut
TOKENS, LEAST = 16_384, 1e-300


def decided(draft: Blueprint, context: Context, standardise: str, seed: int) -> tuple[Choice, ...]:
    """The draft's choices, with the family that groups left out like best where there are rivals."""
    groups = draft.groups
    assert groups is not None
    if len(draft.choices) != 1 or not draft.choices[0].rivals or len(groups) < FEWEST or groups.value is None:
        return draft.choices
    choice, seen = draft.choices[0], groups.value[:, 0][np.isfinite(groups.value[:, 0])]
    if min(groups.count, ROWS) * max(draft.items, 1) > LARGE or not seen.size or seen.min() == seen.max():
        return draft.choices
    several = _compared(draft, choice.rivals, context, standardise, seed)
    if len(several) < 2:
        return draft.choices
    by_name = {label(one): one for one in choice.rivals}
    best = _best(several)
    family = by_name[best]
    if isinstance(family, StudentT):
        others = [replace(family, degrees=degrees) for degrees in DEGREES]
        heavy = _compared(draft, (family, *others), context, standardise, seed)
        total = {name: float(one[:, 0].sum()) for name, one in heavy.items()}
        family = max((family, *others), key=lambda one: total.get(label(one), -np.inf))
    values = "whole numbers" if choice.family.discrete > family.discrete else choice.values
    return (Choice(family, choice.columns, f"{values}; {_told(several, best)}"),)


def _compared(
    draft: Blueprint, rivals: Sequence[Family], context: Context, standardise: str, seed: int
) -> dict[str, Tensor]:
    """Of each rival, by its label, the scores of groups left out in as many splits as there was time for."""
    end, scores = time.thread_time() + SECONDS, dict[str, list[Tensor]]()
    for k in range(SPLITS):
        mine = _scores(draft, rivals, context, standardise, seed + k, end)
        if mine is None or (k and time.thread_time() > end):
            break
        for name, one in mine.items():
            scores.setdefault(name, []).append(one)
    often = max(map(len, scores.values()), default=0)
    return {name: torch.cat(parts) for name, parts in scores.items() if len(parts) == often}  # of the same groups


def label(family: Family) -> str:
    """poisson, zero_or(gamma), student_t(5)"""
    base = getattr(family, "base", None)
    inside = base.name if base is not None else f"{family.degrees:g}" if isinstance(family, StudentT) else ""
    return f"{family.name}({inside})" if inside else family.name


def _best(scores: dict[str, Tensor]) -> str:
    """scores: of each, (group, 2), sums of log p and of weights. The first is the simplest."""
    best, *others = scores
    for name in others:
        gain, weight = scores[name][:, 0] - scores[best][:, 0], scores[best][:, 1].sum()
        as_simple = (best, name) in NO_SIMPLER
        errors = 0.0 if as_simple else 2.0 if name.startswith(CAREFUL) or best == "beta" else 1.0
        least = HEAVY * float(weight) if name.startswith(TAILS) and not as_simple else 0.0
        cut = gain.clamp_max(FAR * float(gain.abs().median()))
        clear = any(float(x.sum()) > errors * float(((x - x.mean()) ** 2).sum().sqrt()) for x in (gain, cut))
        best = name if clear and float(gain.sum()) > least else best
    return best


def _told(scores: dict[str, Tensor], best: str) -> str:
    means = {name: float(one[:, 0].sum() / one[:, 1].sum()) for name, one in scores.items()}
    others = ", ".join(f"{mean:.3f} ({name})" for name, mean in means.items() if name != best)
    return f"groups left out have {means[best]:.3f} ({best}) against {others} nats a value"


def _scores(
    draft: Blueprint, rivals: Sequence[Family], context: Context, standardise: str, seed: int, end: float
) -> dict[str, Tensor] | None:
    """Of the groups left out, (group, 2) each; only of those that can be fitted in time, which none is cut at: half a
    fit says nothing about a family."""
    groups = _fewer(draft, seed)
    tried = (STRONG,) if len(groups) < draft.items * (draft.schema.lags + 1) else PENALTIES
    tried = PENALTIES[:1] if draft.schema.positions is not None else tried
    scores = dict[str, Tensor]()
    for family in rivals:
        try:
            mine = split(replace(draft, family=Product((family,)), groups=groups), HELD, seed, standardise)
            one = _judged(family, mine, context, tried, any(rival.atoms for rival in rivals))
        except FAILURES:
            continue
        if one.isfinite().all() and float(one[:, 1].sum()) > 0:
            scores[label(family)] = one
        if time.thread_time() > end and len(scores) < len(rivals):
            return scores if len(scores) > 1 else None
    return scores


def _judged(family: Family, mine: Blueprint, context: Context, penalties: Sequence[float], zeros: bool) -> Tensor:
    """Under the simple model that suits the family best: linear ones that see more or less of the others; means alone;
    where groups are like rows of a wide table, trees too, since what a line leaves may only look skewed. Where means
    are far better than lines, these fit their rows exactly, and one that looks for its penalties is asked."""
    assert mine.train is not None
    positions = mine.schema.positions is not None
    each = [tuple((FIRST | dict.fromkeys(CONTEXT, penalty))[name] for name in CHOSEN) for penalty in penalties]
    lines: list[Recipe] = [LinearModel(penalty=one, seconds=4 * SECONDS, by_position=positions) for one in each]
    lines += [TwoParts(trees=0, seconds=SECONDS / 6, by_position=positions)] if law(Product((family,))) else []
    best = _best_under(lines, mine, context, zeros)
    if mine.schema.roles.exposure is not None or mine.schema.roles.noise is not None:
        return best
    others: list[Recipe] = [ItemMean()]
    if context == "others" and companions.tabular(mine.train, mine.items):
        others.append(Forest(FEW_TREES))
        others += [Forest(FEW_TREES, logs=True)] if suits(Product((family,))) else []
    other = _best_under(others, mine, context, zeros)
    if float((other[:, 0] - best[:, 0]).sum()) > RUNAWAY * float(best[:, 1].sum()) or not best.isfinite().all():
        best = _best_under([LinearModel(seconds=SECONDS / 30, by_position=positions)], mine, context, zeros)
    return max(best, other, key=_total)


def _best_under(judges: Sequence[Recipe], mine: Blueprint, context: Context, zeros: bool) -> Tensor:
    return max((_under(judge, mine, context, zeros) for judge in judges), key=_total)


def _total(scores: Tensor) -> float:
    return float(scores[:, 0].sum().nan_to_num(-torch.inf))


def _under(judge: Recipe, mine: Blueprint, context: Context, zeros: bool) -> Tensor:
    """Of the groups left out, (group, 2), in the table's units."""
    model = judge.build(mine.setting("value", context))
    assert isinstance(model, DirectlyFitted)
    assert mine.train is not None
    assert mine.held is not None
    model.fit(mine.train)
    if zeros:
        return _with_zeros(model, mine)
    (inner,) = alike([model], getattr(judge, "by_position", False))
    scattered = isinstance(inner, PenalisedLinear) and inner.columns[0].scattered
    one = _by_group(model, mine.held, SHIFTS if scattered else SHIFTS[:1])
    one[:, 0] += mean_log_jacobian(mine, mine.held) * one[:, 1]
    return one


def _fewer(draft: Blueprint, seed: int) -> Groups:
    """As many groups as are looked at."""
    groups = draft.groups
    assert groups is not None
    order = np.random.default_rng(seed).permutation(len(groups))
    rows = np.cumsum(groups.lengths[order])
    kept = order[: max(int(np.searchsorted(rows, ROWS)), 2)][:GROUPS]
    return groups if len(kept) == len(groups) else groups.subset(np.sort(kept))


@torch.no_grad()
def _by_group(model: Conditionals, held: Groups, shifts: Sequence[float]) -> Tensor:
    """(group, 2): sums of weighted log p and of weights. Where there is a dispersion, under the shift that suits these
    groups best: how much too near a fit lies to its own rows says nothing about a family."""
    sums, weights = list[Tensor](), list[Tensor]()
    for batch in held.batches(TOKENS, context=model.context, dtype=torch.float64):
        scores, n = model.log_prob(batch), batch.length
        assert batch.value is not None
        f, weight = model.outputs(batch).double(), scores.weight.double() * scores.scored
        y = batch.value[:, :n].double()
        each = [model.family.log_prob(shifted(f, torch.tensor(by)), y) for by in shifts[1:]]
        every = torch.stack([scores.values.double(), *(x.double() for x in each)])  # (shift, batch, target)
        sums.append(torch.where(scores.scored, every * weight, 0.0).sum(-1))
        weights.append(weight.sum(1))
    total = torch.cat(sums, 1)
    return torch.stack([total[total.sum(1).argmax()], torch.cat(weights)], 1)


@torch.no_grad()
def _with_zeros(model: Conditionals, blueprint: Blueprint) -> Tensor:
    """(group, 2): the same in the table's units, with zeros as less than half the smallest amount."""
    held, fitted, groups, family = blueprint.held, blueprint.schema.standardiser, blueprint.groups, model.family
    assert held is not None
    assert groups is not None
    assert groups.value is not None
    assert isinstance(family, Product)
    half, sums = float(groups.value[groups.value > 0].min()) / 2, []
    for batch in held.batches(TOKENS, context=model.context, dtype=torch.float64):
        scores, n = model.log_prob(batch), batch.length
        assert batch.value is not None
        there = scores.scored
        f, y = model.outputs(batch).double()[there], batch.value[:, :n, 0].double()[there]
        item = None if batch.item is None else batch.item[:, :n][there].cpu().numpy()
        centre, scale = torch.zeros_like(y), torch.ones_like(y)
        if fitted is not None:
            nothing, one = np.zeros((len(y), 1)), np.ones((len(y), 1))
            centre = torch.as_tensor(fitted.undo(nothing, item)[:, 0])
            scale = torch.as_tensor(fitted.undo_scale(one, item)[:, 0])
        below = family.parts[0].cdf(f, (half - centre) / scale).clamp_min(LEAST).log()
        values = scores.values.double()
        values[there] = torch.where(y * scale + centre < half, below, values[there] - scale.log())
        weight = scores.weight.double() * there
        sums.append(torch.stack([(values * weight).sum(1), weight.sum(1)], 1))
    return torch.cat(sums)
