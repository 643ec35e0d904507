"""A fitted model as one immutable value: what was learnt about the table, the networks, the simple models beside them.

    p(y) = sum_k s_k p_k(y)          over the members (networks of an ensemble) and the companions (simple models)

Of items, all of them may be pooled (pool.py): the pool then stands in the networks' place.

Everything a model is asked is a function of this value: one small file a verb.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from efattn.data import Batch, Groups, Schema, Vocabulary, Wide
from efattn.errors import DataError, Note, named, option
from efattn.families import Product
from efattn.inference.calibration import Calibration
from efattn.inference.devices import on, resolved
from efattn.inference.moved import Moved, Moves, Once
from efattn.inference.pool import Pool
from efattn.models import Conditionals, Model, Scores, Term
from efattn.network import Context
from efattn.simple import Recipe
from efattn.training.memory import lacking

TOKENS = 16_384


class Companion(NamedTuple):
    """A simple model that predicts together with the networks, and its share of the mixture; new: its share where a
    row's item was never seen, None for the same; holes: parts of the values that a row may see which are missing, from
    few to many and the same for all companions of a term, each with its share there; empty for the same; power: in the
    pool of its term, if that has one; moves: how its law is moved and spread (moved.py), each with a part of its share,
    empty for the plain law alone."""

    recipe: Recipe
    model: Conditionals
    share: float
    new: float | None = None
    holes: tuple[tuple[float, float], ...] = ()
    power: float = 0.0
    moves: Moves = ()

    def parts(self, items: int) -> "list[Part]":
        """items: from which on they were never seen."""
        return Part(self.model, self.share, "cpu", self.new, items, self.holes).moved(self.moves)


class Part(NamedTuple):
    """One component of a mixture, where it runs, and its share; new: its share in rows of items from `items` on, which
    were never seen, None for the same; holes: as a companion's."""

    model: Conditionals
    share: float
    device: torch.device | str = "cpu"
    new: float | None = None
    items: int = 0
    holes: tuple[tuple[float, float], ...] = ()

    @property
    def ever(self) -> bool:
        """Whether it has a share anywhere."""
        return bool(self.share or self.new or any(share for _, share in self.holes))

    def moved(self, moves: Moves) -> "list[Part]":
        """Its law, moved and spread, in place of the plain one; itself without moves."""
        if not moves:
            return [self]
        once, found = Once(self.model, self.device), list[Part]()
        for step, narrower, part in moves:
            new = None if self.new is None else part * self.new
            holes = tuple((gone, part * share) for gone, share in self.holes)
            found.append(Part(Moved(once, (step, narrower)), part * self.share, "cpu", new, self.items, holes))
        return found

    @property
    def inside(self) -> "tuple[Part, ...]":
        """Of a pool what it is of; else itself."""
        return self.model.parts if isinstance(self.model, Pool) else (self,)

    def outputs(self, batch: Batch, slots: Tensor | None = None) -> Tensor:
        """f (batch, target, size)"""
        with enough_memory(batch):
            slots = None if slots is None else slots.to(self.device)
            return on(self.model, self.device).outputs(batch.to(self.device), slots).cpu()

    def item_outputs(self, batch: Batch, slots: Tensor, chosen: Tensor, most: int) -> Iterator[Tensor]:
        """f (row, size) of the chosen targets of an item term, at most so many rows at a time, where it runs."""
        with enough_memory(batch):
            if isinstance(self.model, Pool):
                yield from self.model.item_outputs(batch, slots, chosen, most)
                return
            model = on(self.model, self.device)
            logits = model.logits(batch.to(self.device), slots.to(self.device), chosen.to(self.device))
            if logits is None:
                yield from self.outputs(batch, slots)[chosen].split(most)
                return
            for some in logits.split(most):
                yield some.formed()

    def log_prob(self, batch: Batch) -> Scores:
        with enough_memory(batch):
            values, scored, weight, _ = on(self.model, self.device).log_prob(batch.to(self.device))
            return Scores(values.cpu(), scored.cpu(), weight.cpu())


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """estimator, parameters: what made it; family: of the value columns, in the table's units; support: "all" or
    "distinct"; terms: "item", "value" or both; longest: group, or piece of one; companions: by term; units: by term,
    the mean of log |dy'/dy| per target, which turns a score in standardised units into one in the table's; network: by
    kind of term, the sizes that were left open; frames: the kind of frame that it was fitted to; seen: fingerprints of
    the groups of its fit, None in older files; lengths: (any, 2), how long those groups were and how many were so long,
    None in older files; calibration: by value column, of quantiles and intervals; wide: how a wide table is laid out
    that it was fitted to, whose long form is what the schema describes; held_out: by term, log scores per held-out
    target in the table's units, of all together, the network and each simple model; device: where networks answer, auto
    for where they would be trained; powers: by term, of the networks in its pool with the companions, if it has one;
    moves: by term, how the law of the networks is moved and spread beside companions, if it is."""

    estimator: str
    parameters: Mapping[str, Any]
    schema: Schema
    family: Product | None
    support: str
    terms: tuple[str, ...]
    longest: int
    members: tuple[Model, ...]
    companions: Mapping[str, tuple[Companion, ...]] = field(default_factory=dict)
    history: tuple[dict[str, Any], ...] = ()
    notes: tuple[Note, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    network: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    frames: str = "polars"
    interrupted: bool = False
    seen: np.ndarray | None = None
    lengths: np.ndarray | None = None
    calibration: Mapping[str, Calibration] = field(default_factory=dict)
    wide: Wide | None = None
    held_out: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    device: torch.device | str = "auto"
    powers: Mapping[str, float] = field(default_factory=dict)
    moves: Mapping[str, Moves] = field(default_factory=dict)

    @property
    def where(self) -> torch.device:
        """The device that its networks answer on."""
        return resolved(self.device, self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the terms."""
        return self.members[0].terms

    @property
    def context(self) -> Context:
        return self.members[0][self.names[0]].context

    @property
    def dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.members[0].parameters() if p.is_floating_point()), torch.float32)

    @property
    def vocabulary(self) -> Vocabulary:
        if self.schema.vocabulary is None:
            raise DataError("This model knows no items: it was fitted without an item column.", option="item")
        return self.schema.vocabulary

    @property
    def looks_at_times(self) -> bool:
        """Whether a network asks how much time lies between rows."""
        terms = (self.members[0][name] for name in self.names)
        return any(isinstance(term, Term) and term.gaps is not None for term in terms)

    def member(self, number: int) -> Model:
        """One network of the ensemble."""
        known = len(self.members)
        if not isinstance(number, Integral) or isinstance(number, bool) or not 0 <= number < known:
            there = f"0 to {known - 1}" if known > 1 else "0 alone: this is no ensemble"
            raise DataError(f"{named('member')} is the number of one, {there}; found {number!r}.", option="member")
        return self.members[number]

    def parts(self, name: str, member: int | None = None) -> tuple[Part, ...]:
        """What says something about a term, by its name: one network, or all of them and their companions."""
        if member is not None:
            return (Part(self.member(member)[name], 1.0, self.where),)
        companions, members = self.companions.get(name, ()), len(self.members)
        left, new = max(1 - sum(one.share for one in companions), 0.0) / members, None  # rounded, they may be above 1
        if any(one.new is not None for one in companions):
            new = max(1 - sum(one.share if one.new is None else one.new for one in companions), 0.0) / members
        items = self.schema.trained_items
        holes = tuple(
            (several[0][0], max(1 - sum(share for _, share in several), 0.0) / members)
            for several in zip(*(one.holes for one in companions), strict=True)
        )
        alone = [Part(model[name], left, self.where, new, items, holes) for model in self.members]
        networks = [part for one in alone for part in one.moved(self.moves.get(name, ()))]
        beside = [part for one in companions for part in one.parts(items)]
        if name not in self.powers or not companions:
            return (*networks, *beside)
        powers = [self.powers[name] / members] * members + [one.power for one in companions]
        return (Part(Pool([*networks, *beside], powers), left * members), *(part for part in beside if part.share))

    def parts_of(self, kind: str, verb: str, member: int | None = None) -> tuple[Part, ...]:
        """The same of the item or the value term."""
        for name in self.names:
            if self.members[0][name].of_items == (kind == "item"):
                return self.parts(name, member)
        raise DataError(
            f"This model has no {kind} term, so it cannot {verb}: fit with {option(kind)} and terms including it.",
            option="terms",
        )

    def batches(self, groups: Groups, term: Conditionals) -> Any:
        """As many tokens as the outputs allow: a vocabulary of a million items makes batches small."""
        yield from groups.batches(batch_tokens(term), context=term.context, dtype=self.dtype)

    def check(self, groups: Groups, *, items: bool = True) -> None:
        """Values in the family's support; items as the model allows them, where they are asked about."""
        if self.family is not None and groups.value is not None:
            self.family.check(groups.value, self.schema.roles.of("value"), groups.label, item=groups.item)
        if items and self.support == "distinct" and "item" in self.terms:
            groups.check_distinct()

    def networks_alone(self) -> "Fitted":
        """Without what stands beside them, and what that made of their laws."""
        return replace(self, companions={}, moves={})

    def to(self, device: torch.device | str) -> "Fitted":
        """The same with its networks answering on another device."""
        return replace(self, device=device)


def models_of(parts: Iterable[Part]) -> list[Conditionals]:
    """Those that parts are made of, where some are pools."""
    return [one.model for part in parts for one in part.inside]


def batch_tokens(term: Conditionals) -> int:
    return max(256, min(TOKENS, 2**26 // term.family.size))


@contextlib.contextmanager
def enough_memory(batch: Batch) -> Iterator[None]:
    """torch's failure to allocate, in words."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not lacking(error):
            raise
        raise DataError(
            f"There is not enough memory to look at {batch.length:,} rows of one group at a time. Fit with "
            f"{option('max_length')}, which cuts long groups, or ask about fewer rows of it.",
            option="max_length",
        ) from error
