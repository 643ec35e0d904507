"""A simple fitted model as a prior for the network: which one, fitted to what, and what training makes of it.

    draws    loss = (1 - w) real + w drawn             the network learns from a model what data alone would not tell
    offset   f = network + f_prior(context)            training begins at the prior; cross-fitted while it trains
    start    first draws alone, then the data alone
    member   p = (1 - w) network + w prior             the prior predicts too, as a member of the mixture

A prior is fitted once per fit, to the training groups; held-out groups choose how much it is shrunk.
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch

from efattn.data import Batch, Groups, Standardiser
from efattn.errors import DataError, EfattnError
from efattn.estimators import saving
from efattn.estimators.plan import Plan, flat
from efattn.families import Bernoulli, Categorical, Family, Gaussian, Poisson, Product
from efattn.inference import mixture
from efattn.models import Conditionals, Model, Offset, Term
from efattn.models.offset import Alone, check_offset
from efattn.priors.base import TOKENS, FittedOnce
from efattn.priors.draws import Draws
from efattn.priors.folds import CrossFitted
from efattn.training import Feed, Fitting, Step, Training

if TYPE_CHECKING:
    from efattn.estimators.efa import EFA

log = logging.getLogger("efattn")
NAMED, USES = ("auto", "gaussian", "additive"), ("draws", "offset", "start", "member")
SHARES = tuple(k / 10 for k in range(1, 10))  # of a mixture
CELLS, WORK = 300, 2e9  # items and lags, and their cubes over all groups, for a simple model to be tried unasked
Tick = Callable[[str, int, int], object]


@final
@dataclass
class DrawnFeed:
    """Draws beside the data, or with first=True before them."""

    data: Groups
    draws: Draws
    weight: float
    first: bool = False
    start_counts: bool = False

    @property
    def phases(self) -> int:
        return 2 if self.first else 1

    def prepare(self, term: Conditionals) -> None:
        """Nothing to do."""

    def batches(self, pieces: np.ndarray, term: Conditionals, step: Step) -> Sequence[tuple[float, Batch]]:
        real = self.data.batch(pieces, term.context)
        if self.weight == 0 or (self.first and step.phase):
            return [(1.0, real)]
        drawn = self.draws.batch(real, step.seed, step.epoch, step.number)
        return [(1.0, drawn)] if self.first else [(1 - self.weight, real), (self.weight, drawn)]


@final
@dataclass
class OffsetFeed:
    """The data, each group with what a prior that does not know it says. Training begins at the prior itself."""

    data: Groups
    offset: Offset
    fitted: CrossFitted | None
    phases: int = 1
    start_counts: bool = True

    def prepare(self, term: Conditionals) -> None:
        assert isinstance(term, Term)
        term.add(self.offset)
        start = self.offset.get_buffer("start")
        term.head.start(start.expand(term.family.size) if self.offset.prior.of_items else start)

    def batches(self, pieces: np.ndarray, term: Conditionals, step: Step) -> Sequence[tuple[float, Batch]]:
        batch = self.data.batch(pieces, term.context)
        return [(1.0, batch if self.fitted is None else batch.replace(offset=self.fitted(pieces, batch)))]


def check(estimator: "EFA") -> None:
    """A DataError for a prior, weight or use that cannot be."""
    prior, weight, use = estimator.prior, estimator.prior_weight, estimator.prior_use
    named = isinstance(prior, str) and prior in NAMED
    if prior is not None and not named and not isinstance(prior, _peers()):
        raise DataError(
            f"prior is {', '.join(map(repr, NAMED))}, one of efattn.baselines such as baselines.ShrunkMean(), or "
            f"None; found {prior!r}."
        )
    if isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= weight <= 1:
        raise DataError(f"prior_weight is a share from 0 to 1; found {weight!r}.")
    if not _uses(use) or not set(_uses(use)) <= set(USES) or len(set(_uses(use)) - {"member"}) > 1:
        raise DataError(
            f"prior_use is {', '.join(map(repr, USES))}, or one of the others together with 'member', as "
            f"('draws', 'member'); found {use!r}."
        )


def feeds(estimator: "EFA", plan: Plan, options: Training, tick: Tick | None = None) -> dict[str, Feed]:
    """Of each term that has a prior, what it is trained on. Notes about it go to the groups'."""
    if estimator.prior is None:
        return {}
    if estimator.prior == "auto":
        _propose(estimator, plan, options)
        return {}
    prior = Prior(estimator, plan, *_named(estimator), options)
    _note(plan, f"Prior of {prior.name!r}: {prior.words(estimator.prior_use)}.")
    fed: dict[str, Feed] = {}
    for use in _uses(estimator.prior_use):
        if use == "member":
            plan.beside[prior.name] = prior.alone()
        else:
            fed[prior.name] = prior.feed(use)
    return fed


def _uses(use: Any) -> tuple[Any, ...]:
    return (use,) if isinstance(use, str) else tuple(use) if isinstance(use, Sequence) else ()


@final
class Prior:
    """A peer fitted to the training groups, for one term ("item" or "value")."""

    def __init__(self, estimator: "EFA", plan: Plan, term: str, peer: Any, options: Training) -> None:
        self.weight, self.peer, self.options, self.seed = estimator.prior_weight, peer, options, estimator.seed
        self.plan, self.of_items, self.context = plan, term == "item", estimator.context
        self.name = "item" if self.of_items else plan.value_name
        self.ready = hasattr(peer, "model_")
        _check_term(plan, term, peer)
        _check_peer(estimator, plan, peer, self.of_items, self.ready)
        if {"offset", "member"} & set(_uses(estimator.prior_use)) or estimator.prior == "auto":
            check_offset(self.family)
        self.model = peer.model_[peer.model_.terms[0]] if self.ready else self._fit(plan.train)

    @property
    def family(self) -> Family:
        """Of the term."""
        if self.of_items:
            return Categorical(max(self.plan.items, 2))
        assert self.plan.family is not None
        return self.plan.family

    def words(self, use: Any) -> str:
        share = f", weight {self.weight:g}" if {"draws", "member"} & set(_uses(use)) else ""
        return f"{type(self.peer).__name__} ({' and '.join(_uses(use))}{share})"

    def alone(self) -> Alone:
        """The prior as a member of the mixture."""
        return (
            Alone(self._offset(self.model), self.context, self.plan.distinct, self.weight).eval().requires_grad_(False)
        )

    def feed(self, use: str) -> Feed:
        train = self.plan.train
        if use != "offset":
            scale, shift = self._units() or (None, None)
            draws = Draws(self.model, train, self.family, scale, shift)
            return DrawnFeed(train, draws, self.weight, first=use == "start")
        fitted = None
        if not self.ready and len(train) > 1:
            fitted = CrossFitted(train, lambda part: self._offset(self._fit(part, again=True)))
        return OffsetFeed(train, self._offset(self.model), fitted)

    def _fit(self, groups: Groups, again: bool = False) -> Conditionals:
        """again: regularised as the first fit was."""
        (prior, *_) = self.peer._terms(prior_plan(self.plan, self.of_items)).values()
        if not isinstance(prior, FittedOnce):
            return self._train(prior, groups)
        if again:
            for option in ("weight", "strength"):
                if hasattr(prior, option) and "chosen" in dict(self.model.named_buffers()):
                    setattr(prior, option, float(self.model.get_buffer("chosen")))
        prior.fit(groups, self.plan.held)
        return prior.eval()

    def _train(self, prior: Conditionals, groups: Groups) -> Conditionals:
        options = self.peer.training or self.options
        prior.start(flat(groups))
        fitting = Fitting(Model({"item": prior}), groups, self.plan.held, options, self.peer.seed)
        fitting.run()
        if fitting.interrupted:
            raise KeyboardInterrupt
        return prior.eval().requires_grad_(False)

    def _offset(self, prior: Conditionals) -> Offset:
        origin = {"peer": saving.plain(self.peer), "items": self.plan.items}
        offset = Offset(prior, self.family, self.plan.items, origin)
        units = self._units()
        if units is not None:
            offset.get_buffer("scale").copy_(units[0])
            offset.get_buffer("shift").copy_(units[1])
        if offset.ordinal is not None:
            offset.get_buffer("start").copy_(offset.ordinal.start(torch.as_tensor(self.plan.train.value[:, 0])))
        return offset

    def _units(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Scale and shifts from the term's values to those of a peer that was fitted before; None where they agree."""
        if self.of_items or not self.ready:
            return None
        mine, theirs = self.plan.schema.standardiser, self.peer.schema_.standardiser
        (s1, c1), (s2, c2) = (_scale_and_centres(x, self.plan.items) for x in (mine, theirs))
        return torch.as_tensor(s1 / s2).reshape(1), torch.as_tensor((c1 - c2) / s2)


def prior_plan(plan: Plan, of_items: bool) -> Plan:
    """The plan of a prior. Where a family is none of the simple models', they give mean and variance."""
    if of_items:
        return replace(plan, terms=("item",))
    assert plan.family is not None
    part = plan.family.parts[0]
    family = plan.family if isinstance(part, Gaussian | Poisson | Bernoulli) else Product((Gaussian("predicted"),))
    return replace(plan, family=family, terms=("value",))


def rebuilt(origin: Any, plan: Plan, family: Family, of_items: bool) -> Offset:
    """An offset as a file describes it, without its tensors."""
    peer: Any = saving.restored(origin["peer"])
    items = origin["items"]
    known = any(isinstance(peer, kind) for kind in _peers())
    if not known or not isinstance(items, int) or not 0 <= items <= plan.items:
        raise DataError("its prior is none of the simple models")
    mine = replace(prior_plan(plan, of_items), only=items)
    (prior, *_) = peer._terms(mine).values()
    if prior.of_items != of_items or prior.family.size > family.size + (0 if of_items else 1):
        raise DataError("its prior is not of the same term")
    return Offset(prior, family, items, {"peer": origin["peer"], "items": items})


def _propose(estimator: "EFA", plan: Plan, options: Training) -> None:
    """A Gaussian beside the networks, where it is quickly fitted. It is no more than an offer, so that a table which it
    cannot be fitted to has none."""
    from efattn import baselines

    cells = plan.items * (estimator.lags + 1)
    small = 1 < cells <= CELLS and float(cells) ** 3 * len(plan.train) <= WORK
    if "value" not in plan.terms or plan.held is None or not len(plan.held) or not small:
        return
    peer = baselines.GaussianConditional(context=estimator.context, lags=estimator.lags)
    try:
        prior = Prior(estimator, plan, "value", peer, options)
        plan.beside[prior.name] = prior.alone()
    except (EfattnError, ArithmeticError, RuntimeError, ValueError) as error:
        log.debug("No simple model beside the network: %s", error)


@torch.no_grad()
def settle(plan: Plan, models: Sequence[Model]) -> None:
    """How much of the mixture the proposed model gets: what the held-out groups like best, or nothing."""
    for name, simple in list(plan.beside.items()):
        assert plan.held is not None
        network, weight = mixture.log_probs([model[name] for model in models], plan.held, TOKENS)
        other, _ = mixture.log_probs([simple], plan.held, TOKENS)
        scores = {0.0: float(network @ weight / weight.sum())}
        for share in SHARES:
            both = torch.logaddexp(network + math.log(1 - share), other + math.log(share))
            scores[share] = float(both @ weight / weight.sum())
        simple.share = max(scores, key=lambda share: scores[share])
        told = f"log-likelihood per held-out target: network alone {scores[0.0]:.4f}"
        if not simple.share:
            del plan.beside[name]
            _note(plan, f"A Gaussian beside the network of {name!r} does not help ({told}).")
        else:
            _note(
                plan,
                f"A Gaussian beside the network of {name!r} gets {simple.share:.0%} of the mixture ({told}, together "
                f"{scores[simple.share]:.4f}); prior=None leaves it out.",
            )


def _named(estimator: "EFA") -> tuple[str, Any]:
    """The term, "item" or "value", that the prior is for, and the peer that it is."""
    from efattn import baselines

    prior, context = estimator.prior, estimator.context
    if prior == "additive":
        return "item", baselines.AdditiveLogit(context=context, seed=estimator.seed)
    if prior == "gaussian":
        return "value", baselines.GaussianConditional(context=context, lags=estimator.lags)
    return "item" if prior.terms == "item" else "value", prior


def _check_term(plan: Plan, term: str, peer: Any) -> None:
    kind = type(peer).__name__
    if term not in plan.terms:
        raise DataError(
            f"{kind} is a prior of {term}s, and only the {plan.terms[0]} term is modelled. Choose another prior, or "
            "other terms."
        )
    if term == "value" and plan.schema.roles.exposure is not None:
        raise DataError(f"{kind} takes no exposure: leave the prior out.")
    if term == "value" and plan.family is not None and plan.family.columns > 1:
        raise DataError(f"{kind} is a prior of one value column: fit a model of each, or leave the prior out.")
    if term == "value" and not plan.items and kind not in ("ItemMean", "ShrunkMean"):
        raise DataError(f"{kind} needs an item column: pass item=..., or prior=baselines.ShrunkMean().")


def _check_peer(estimator: "EFA", plan: Plan, peer: Any, of_items: bool, ready: bool) -> None:
    kind = type(peer).__name__
    if peer.context != estimator.context:
        raise DataError(
            f"The prior {kind} has context={peer.context!r} and the model context={estimator.context!r}: they must be "
            "the same."
        )
    if getattr(peer, "lags", 0) > estimator.lags:
        raise DataError(f"The prior {kind} looks {peer.lags} time steps back, the model {estimator.lags}: pass lags=.")
    if not ready:
        return
    theirs, mine = peer.schema_.vocabulary, plan.schema.vocabulary
    if (theirs is None) != (mine is None) or (theirs is not None and mine is not None and theirs.names != mine.names):
        raise DataError(
            f"The fitted prior {kind} knows other items than this table. Pass it unfitted: it is then fitted."
        )
    if of_items and peer.support_ != plan.support:
        raise DataError(f"The fitted prior {kind} has support={peer.support_!r}, the model {plan.support!r}.")
    values = (peer.schema_.roles.of("value"), plan.schema.roles.of("value"))
    if not of_items and values[0] != values[1]:
        raise DataError(f"The fitted prior {kind} is of column {values[0]}, the model of {values[1]}.")
    if not of_items and not _same_kind(peer.family_, prior_plan(plan, of_items=False).family):
        raise DataError(f"The fitted prior {kind} has {peer.family_.parts[0]!r}: fit it with the model's family.")


def _same_kind(theirs: Product, mine: Product | None) -> bool:
    """Two Gaussians are, where the peer's variance is its own."""
    if mine is None or theirs == mine:
        return mine is not None
    one, two = theirs.parts[0], mine.parts[0]
    return isinstance(one, Gaussian) and isinstance(two, Gaussian) and isinstance(one.noise, str)


def _scale_and_centres(standardiser: Standardiser | None, items: int) -> tuple[float, np.ndarray]:
    if standardiser is None:
        return 1.0, np.zeros(items + 1)
    if standardiser.item_centre is not None:
        return float(standardiser.scale[0]), standardiser.item_centre[:, 0]
    return float(standardiser.scale[0]), np.full(items + 1, standardiser.centre[0])


def _peers() -> tuple[type, ...]:
    from efattn import baselines

    return baselines.BASELINES


def _note(plan: Plan, words: str) -> None:
    plan.groups.notes.append(words)
    log.info(words)
