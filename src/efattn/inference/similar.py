"""What goes together.

    items    1/2 log p(b | a) / p(b) + 1/2 log p(a | b) / p(a)     how much the presence of each raises the other
    values   1/2 r(b | a) + 1/2 r(a | b),  r(b | a) = (E[b | a high] - E[b | a low]) / sd(b)  over  (high - low) / sd(a)

Both are asked of the model's own predictions, all of its parts together: with nothing else known of the group but one
row. Of a Gaussian, r is the correlation. p(b) is what b has behind a row drawn at random.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch
from efattn.errors import DataError
from efattn.families import Product
from efattn.inference import frames, mixture
from efattn.inference.fitted import Fitted, Part, models_of
from efattn.inference.next_row import usual_attributes
from efattn.inference.recommend import check_count, soon

MOST = 1000  # items that are looked at from both sides
AT_ONCE = 2**22  # probabilities
COMPLETE = 0.9  # share of the items in the longest group, from which on it is taken for a row of a wide table
TAILS = (
    0.16,
    0.001,
)  # what counts as low and high: about a standard deviation away, and where that is the same, further


def similar(fitted: Fitted, item: Any, k: int = 10, *, member: int | None = None, kind: str | None = None) -> Any:
    """The k items that go best with this one, and how well. kind: of the frame."""
    check_count(k)
    score = closeness(fitted, fitted.vocabulary.number(item), member)
    best = np.argsort(-score, kind="stable")[: min(k, int(np.isfinite(score).sum()))]
    columns = frames.item_columns(fitted.vocabulary, best)
    return frames.frame(columns | frames.renamed({"score": score[best]}, columns), kind or fitted.frames)


@torch.no_grad()
def closeness(fitted: Fitted, item: int, member: int | None = None) -> np.ndarray:
    """(item,): how well each item goes with this one; minus infinity for itself, and for those not looked at."""
    kind = "value" if "item" not in fitted.terms or _always_there(fitted) else "item"
    if fitted.schema.vocabulary is None:
        raise DataError("There are no items to compare: this model was fitted without an item column.", option="item")
    parts = fitted.parts_of(kind, "similar", member)
    scores = (_lift if kind == "item" else _together)(fitted, parts, item)
    scores[item] = -np.inf
    return scores


def _always_there(fitted: Fitted) -> bool:
    """Whether groups hold about all items once, so that their presence tells nothing, and their values may."""
    whole = fitted.longest >= COMPLETE * len(fitted.vocabulary)
    return "value" in fitted.terms and fitted.support == "distinct" and whole


def _lift(fitted: Fitted, parts: Sequence[Part], item: int) -> np.ndarray:
    ask, size = partial(_next, fitted, parts), parts[0].model.family.size
    nothing = _rows(fitted, parts, torch.tensor([size]))
    first = mixture.item_probabilities(parts, lambda x: x.outputs(nothing)[:, 0], fitted.vocabulary.columns[0])[0]
    usual = first.topk(min(MOST, size)).indices
    before = first[usual] / first[usual].sum()
    expected, at_once = torch.zeros(size, dtype=torch.float64), max(AT_ONCE // size, 1)
    for some, share in zip(usual.split(at_once), before.split(at_once), strict=True):
        expected += share @ ask(some)
    if parts[0].model.support == "distinct":  # no item comes behind itself
        expected = expected / (1 - torch.zeros(size, dtype=torch.float64).index_put((usual,), before)).clamp_min(1e-9)
    there = (ask(torch.tensor([item]))[0] / expected).log()
    scores = torch.full((size,), -torch.inf, dtype=torch.float64)
    candidates = there.index_fill(0, torch.tensor([item]), -torch.inf).topk(min(MOST, size)).indices
    for some in candidates.split(at_once):
        scores[some] = (there[some] + (ask(some)[:, item] / expected[item]).log()) / 2
    return scores.nan_to_num(-torch.inf).numpy()


def _next(fitted: Fitted, parts: Sequence[Part], item: Tensor) -> Tensor:
    """(context, item): the probability of each behind one row alone."""
    batch = _rows(fitted, parts, item)
    given: dict[str, Any] = {"when": soon(parts, batch)}
    if batch.attributes is not None:
        given["attributes"] = batch.attributes
    ask = partial(_one_more, batch=batch, given=given)
    return mixture.item_probabilities(parts, ask, fitted.vocabulary.columns[0])


def _one_more(part: Part, batch: Batch, given: dict[str, Any]) -> Tensor:
    """f (batch, size) of a position after the last of each group, whose own item nobody knows."""
    longer = batch.with_one_more(item=part.model.family.size, **given)
    return part.outputs(longer, torch.full((len(batch.exists), 1), batch.length))[:, 0]


def _together(fitted: Fitted, parts: Sequence[Part], item: int) -> np.ndarray:
    every = torch.arange(len(fitted.vocabulary))
    one = torch.full_like(every, item)
    low, high, sd = _alone(fitted, parts, every)
    there = _effect(fitted, parts, one, every, low[one], high[one]) / sd * (sd / (high - low))[one]
    back = _effect(fitted, parts, every, one, low, high) / sd[one] * sd / (high - low)
    return ((there + back) / 2).nan_to_num(0.0, 0.0, 0.0).mean(-1).numpy()


def _alone(fitted: Fitted, parts: Sequence[Part], item: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(item, column): a low value of each, a high one and the standard deviation, with nothing known."""
    family, shares = parts[0].model.family, [part.share for part in parts]
    assert isinstance(family, Product)
    f = [part.outputs(_rows(fitted, parts, item))[:, 0].double() for part in parts]
    low, high = (mixture.quantile(family, f, shares, p) for p in (TAILS[0], 1 - TAILS[0]))
    far = [mixture.quantile(family, f, shares, p) for p in (TAILS[1], 1 - TAILS[1])]
    same = low >= high
    low, high = torch.where(same, far[0], low), torch.where(same, far[1], high)
    return low, high, mixture.variance(family, f, shares).sqrt()


def _effect(fitted: Fitted, parts: Sequence[Part], seen: Tensor, asked: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """(pair, column): how much higher one is expected where the other is high than where it is low."""
    family, shares = parts[0].model.family, [part.share for part in parts]
    assert isinstance(family, Product)
    means = []
    for value in (high, low):
        batch = _rows(fitted, parts, seen, asked, value=value)
        means.append(mixture.mean(family, [part.outputs(batch)[:, 1].double() for part in parts], shares))
    return means[0] - means[1]


def _rows(fitted: Fitted, parts: Sequence[Part], *items: Tensor, value: Tensor | None = None) -> Batch:
    """Groups of one row each, or of two, of which the second has no value; with the usual attributes."""
    item, family = torch.stack(items, 1), parts[0].model.family
    groups, length = item.shape
    there = torch.ones_like(item, dtype=torch.bool)
    fields: dict[str, Tensor] = {"item": item, "lag": torch.zeros_like(item)}
    fields["when"] = torch.zeros(item.shape, dtype=torch.float64)
    fields["position"] = torch.arange(length).expand(groups, -1)
    if isinstance(family, Product):
        fields["value"] = torch.zeros(groups, length, family.columns)
        fields["observed"] = torch.zeros(groups, length, family.columns, dtype=torch.bool)
        if value is not None:
            fields["value"][:, 0], fields["observed"][:, 0] = value.float(), True
    size = len(fitted.schema.attribute_names)
    if size:
        usual = torch.as_tensor(usual_attributes(models_of(parts), size), dtype=torch.float32)
        fields["attributes"] = usual.expand(groups, length, -1)
    return Batch(length=length, exists=there, target=there, **fields)
