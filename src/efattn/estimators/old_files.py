"""What model files of format 1 hold and no fit makes any more, so that they still load.

    beside   a simple model with a share of the mixture, in units of its own
    prior    a simple model inside a term:  f = network + f_simple(context)

Peers were estimators of their own, with the names that recipes have now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import torch
from torch import Tensor, nn

from efattn.data import Batch
from efattn.errors import DataError
from efattn.estimators.growing import Grown
from efattn.families import Family, Product
from efattn.models import Conditionals, Term
from efattn.models.scoring import at
from efattn.simple import RECIPES, GaussianConditional, LinearModel, MeanAndVariance, Recipe, Setting

KINDS = {recipe.__name__: recipe for recipe in RECIPES}


def recipe_of(saved: Mapping[str, Any]) -> Recipe:
    """From {"kind", "settings"}; an old one's settings are more than a recipe has, and an additive logit that says how
    it is scaled is of the kind that was of full rank."""
    full = saved["kind"] == "FullLogit" or (saved["kind"] == "AdditiveLogit" and "scale" in saved["settings"])
    kind: Any = FullLogit if full else KINDS[saved["kind"]]
    known = {one.name for one in fields(kind)}
    settings: dict[str, Any] = dict(saved["settings"])
    if kind is GaussianConditional:
        settings = {"rank": "full"} | settings  # older ones had a number for each pair, however many items there were
    if kind is LinearModel:
        settings = {"plain": True} | settings
    made: Recipe = kind(**{name: x for name, x in settings.items() if name in known})
    return made


def renewed(estimator: str, parameters: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The estimator and the parameters that stand for those of format 1, restored."""
    given = dict(parameters)
    if estimator in KINDS:
        kind = KINDS[estimator]
        kept = ("family", "context", "lags", "support", "seed", "training")
        same = {name: given[name] for name in kept if name in given}
        same |= {"context": "past"} if estimator == "MarkovChain" else {}
        same |= {"lags": 1} if estimator == "Persistence" else {}
        same |= {"family": "gaussian"} if kind.models == "value" and "family" not in same else {}
        return "SimpleModel", {"model": recipe_of({"kind": estimator, "settings": given}), **same}
    if "context_dropout" in given:  # one rate for all groups; as much on average
        given |= {"hide": min(4 * given.pop("context_dropout"), 0.9), "dispersion": "shared"}
    if "prior" in given:
        prior, use = given.pop("prior"), given.pop("prior_use", "draws")
        given.pop("prior_weight", None)
        member = use == "member" or (isinstance(use, tuple | list) and "member" in use)
        given["companions"] = prior if prior == "auto" or (isinstance(prior, Recipe) and member) else None
    return estimator, given


@final
class InOtherUnits(Conditionals):
    """A simple model whose values are scale times the term's, plus a shift for each of the items that it knows."""

    def __init__(self, recipe: Recipe, family: Family, setting: Setting) -> None:
        super().__init__(family, setting.context, setting.support)
        self.recipe, self.inner, self.items = recipe, recipe.build(setting), setting.items
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))
        self.register_buffer("shift", torch.zeros(setting.items + 1, dtype=torch.float64))
        self.register_buffer("marginal_fit", torch.zeros(1 if self.of_items else family.size, dtype=torch.float64))

    def start(self, batch: Batch) -> None:
        """It is fitted."""

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        if self.of_items:
            grown = Grown(self.inner, self.family) if self.inner.family.size < self.family.size else self.inner
            return grown.raw_outputs(batch, slots)
        assert isinstance(self.inner, MeanAndVariance)
        assert isinstance(self.family, Product)
        assert batch.value is not None
        scale, shift = self.get_buffer("scale"), self._shifts(batch)
        mean, variance = self.inner.moments(batch.replace(value=batch.value.double() * scale + shift[..., None]))
        mean = self.inner.floored(mean, batch)
        mean, variance = (mean - shift[:, : batch.length]) / scale, variance / scale**2
        return at(self.family.parts[0].from_moments(mean, variance, self.get_buffer("marginal_fit")), slots)

    def _shifts(self, batch: Batch) -> Tensor:
        """(batch, context)"""
        shift = self.get_buffer("shift")
        if batch.item is None or not self.items:
            return shift[-1].expand(batch.exists.shape)
        return shift[batch.item.clamp_max(self.items)]


@final
class WithOffset(Conditionals):
    """What a network gives, added to what a simple model gives."""

    def __init__(self, network: Term, simple: InOtherUnits) -> None:
        super().__init__(network.family, network.context, network.support)
        self.network, self.simple = network, simple

    def start(self, batch: Batch) -> None:
        """It is fitted."""

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        f = self.network.raw_outputs(batch, slots)
        offset = self.simple.raw_outputs(batch, slots) - self.simple.get_buffer("marginal_fit")
        return f + offset.to(torch.promote_types(f.dtype, torch.float32))


@final
@dataclass(frozen=True)
class FullLogit(Recipe):
    """What AdditiveLogit was: softmax(b + s(n) sum over the context of M[x_j]), M of full rank. scale: "root" divides
    the sum by sqrt(n), "mean" by n, "sum" by nothing."""

    scale: str = "root"
    models = "item"

    def build(self, setting: Setting) -> Conditionals:
        if self.scale not in ("sum", "mean", "root"):
            raise DataError(f"FullLogit: scale is 'sum', 'mean' or 'root', not {self.scale!r}.", option="scale")
        return FullItems(setting, self.scale)


@final
class FullItems(Conditionals):
    def __init__(self, setting: Setting, scale: str) -> None:
        super().__init__(setting.family, setting.context, setting.support)
        items = self.family.size
        self.scale = scale
        self.bias = nn.Parameter(torch.zeros(items))
        self.matrix = nn.Parameter(torch.zeros(items, items))

    @torch.no_grad()
    def start(self, batch: Batch) -> None:
        self.bias.copy_(self.marginal(batch).to(self.bias.dtype))

    def raw_outputs(self, batch: Batch, slots: Tensor) -> Tensor:
        if batch.item is None:
            raise DataError("FullLogit needs an item column.")
        n, size = batch.length, self.family.size
        item = batch.item[:, :n]
        column = torch.arange(n, device=item.device)
        may = column < slots[..., None] if self.context == "past" else column != slots[..., None]
        seen = (may & (batch.exists[:, :n] & (item < size))[:, None]).to(self.matrix.dtype)  # (batch, target, context)
        count = seen.sum(-1, keepdim=True).clamp_min(1)
        return self.bias + self._share(count) * (seen @ self.matrix[item.clamp_max(size - 1)])

    def _share(self, count: Tensor) -> Tensor:
        return {"sum": torch.ones_like(count), "mean": 1 / count, "root": count.rsqrt()}[self.scale]


def in_other_units(origin: Mapping[str, Any], setting: Setting) -> InOtherUnits:
    """As a file describes it, without its tensors. origin: its peer, restored, and how many items it knew."""
    recipe, items = origin["peer"], origin["items"]
    if not isinstance(recipe, Recipe) or isinstance(items, bool) or not isinstance(items, int):
        raise DataError("its prior is none of the simple models")
    if not 0 <= items <= setting.items or (recipe.models == "item") != (not isinstance(setting.family, Product)):
        raise DataError("its prior is not of the same term")
    family: Family = setting.family if recipe.models == "value" else type(setting.family)(max(items, 2))  # type: ignore[call-arg]
    known = Setting(family, items, setting.context, setting.support, setting.lags, setting.attributes)
    return InOtherUnits(recipe, setting.family, known)


def renamed(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of a simple model in format 1, by the names they have now."""
    mine = {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
    names = {name: f"inner.{name.removeprefix('prior.')}" for name in mine if name.startswith("prior.")}
    return {names.get(name, "marginal_fit" if name == "start" else name): x for name, x in mine.items()}
