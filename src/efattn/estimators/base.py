"""From a table to a fitted model, and what every fitted model can be asked.

    fit:  roles -> schema and groups -> families -> split by group -> standardise -> terms -> training

Subclasses say which terms they build; the rest is the same for all.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from efattn.data import Groups, Roles, Schema, Table
from efattn.errors import DataError, Note
from efattn.estimators import families as choosing
from efattn.estimators import members, saving, words
from efattn.estimators.plan import Plan, chosen_support, flat, named_terms, whole
from efattn.estimators.progress import line_writer
from efattn.families import Gaussian, MultivariateGaussian, Product
from efattn.inference import items, looking, rows
from efattn.models import Conditionals, Model
from efattn.network import Context
from efattn.training import Feed, Record, Training

log = logging.getLogger("efattn")


class GroupEstimator(BaseEstimator, ABC):
    """Fitted attributes: schema_, model_ (terms by name), members_ (of an ensemble, of which model_ is the first),
    beside_ (simple models that predict with them, by term), family_ (of the value columns), support_, terms_,
    history_, notes_, interrupted_. Where a method has member=, None is for the mixture of all of them."""

    # what every subclass's constructor has
    family: Any
    context: Context
    terms: Any
    support: str
    standardise: str
    seed: int
    training: Training | None
    ensemble: int = 1  # members; a constructor may have it

    @abstractmethod
    def _check(self) -> None:
        """A DataError for a parameter that cannot be."""

    @abstractmethod
    def _terms(self, plan: Plan) -> dict[str, Conditionals]:
        """The terms to train, untrained."""

    @abstractmethod
    def _sizes(self) -> dict[str, Any]:
        """lags and max_length, for the schema."""

    def _feeds(self, plan: Plan, options: Training, tick: Any = None) -> dict[str, Feed]:
        """What a term is trained on, where that is not the data as they are; fitted once, for every network."""
        return {}

    def _settle(self, plan: Plan, models: Sequence[Model]) -> None:
        """What is left to decide when the networks are trained."""

    def fit(
        self,
        table: Any,
        y: None = None,
        *,
        group: str | Sequence[str] = (),
        item: str | Sequence[str] = (),
        value: str | Sequence[str] = (),
        attributes: str | Sequence[str] = (),
        order: str | None = None,
        time: str | None = None,
        series: str | Sequence[str] | None = None,
        exposure: str | None = None,
        weight: str | None = None,
        target: str | None = None,
        missing: Any = None,
        validation: Any = 0.2,
        checkpoint: str | Path | None = None,
        resume: bool = False,
        callbacks: Iterable[Callable[[Record], object]] = (),
        history: str | Path | None = None,
        progress: bool | None = None,
        planned: Callable[[Plan], object] | None = None,
    ) -> Any:
        """Fit to a frame or a file. Roles name columns; validation: a share of the groups (with lags: of the times)
        held out to stop early by, or a table, or None; checkpoint: a folder to write to while training, and with
        resume=True to go on from; callbacks: called with each epoch's record; history: a file to append each record
        to as a line of JSON; progress: a bar, by default on a terminal; planned: called with what was understood,
        before training starts."""
        value = choosing.ordered(self.family, _tuple(value))
        roles = Roles(group, item, value, attributes, order, time, series, exposure, weight, target, missing)
        plan = self._plan(table, roles, validation)
        if planned is not None:
            planned(plan)
        options = self.training or Training()
        kept = members.checkpoint(self, checkpoint, resume, plan, options)
        calls = [*_list(callbacks), *([line_writer(history)] if history is not None else [])]
        models = [self._build(plan, member=k) for k in range(self.ensemble)]
        found = members.fitted(
            models,
            plan,
            options,
            self.seed,
            callbacks=calls,
            progress=progress,
            kept=kept,
            resume=resume,
            feeds=lambda tick: self._feeds(plan, options, tick),
        )
        self._settle(plan, found.models)
        return self._take(plan, *found)

    def update(
        self,
        table: Any,
        *,
        validation: Any = 0.2,
        training: Training | None = None,
        callbacks: Iterable[Callable[[Record], object]] = (),
        progress: bool | None = None,
    ) -> Any:
        """Go on training on new rows with the same columns: standardisers stay, new items are appended. training: by
        default as in fit, at a third of its rate."""
        self._check_fitted()
        source = Table.read(table)
        if not len(source):
            raise DataError("The table has no rows: there is nothing to learn from.")
        schema = self.schema_.with_new_items(source)
        groups = schema.encode(source, need=("value",) if "value" in self.terms_ else ())
        self._check_fits(groups)
        plan = Plan(schema, groups, self.family_, self.support_, self.terms_, self.longest_)
        plan = self._split(plan, validation, standardiser=False)
        models = [self._build(plan, start=False, member=k) for k in range(len(self.members_))]
        for new, old in zip(models, self.members_, strict=True):
            saving.grow(new, old)
        plan.beside = {name: simple.like(models[0][name].family) for name, simple in self.beside_.items()}
        calm = training or replace(self.training or Training(), rate=(self.training or Training()).rate / 3)
        calls, before = _list(callbacks), self.history_
        found = members.fitted(models, plan, calm, self.seed, callbacks=calls, progress=progress, before=before)
        return self._take(plan, *found)

    def score(self, table: Any, y: None = None, *, member: int | None = None) -> float:
        """Total log-likelihood of the scored rows over their number: nats per row, in the table's units."""
        return float(self.scores(table, member=member)["mean_log_likelihood"])

    def scores(self, table: Any, *, member: int | None = None) -> dict[str, Any]:
        """mean_log_likelihood, and per term; observations, how many rows are scored, and how many items are unknown."""
        groups, found = self._log_likelihoods(table, member)
        columns = np.stack(list(found.values()))
        scored = ~np.isnan(columns)
        any_, unknown = scored.any(0), 0
        if groups.item is not None and groups.vocabulary is not None:
            unknown = int((groups.item == groups.vocabulary.unknown).sum())
        if not any_.any():
            raise DataError("No row of this table can be scored: every target is missing or unknown.")
        terms = {name: float(x[~np.isnan(x)].mean()) if (~np.isnan(x)).any() else None for name, x in found.items()}
        total = float(np.where(scored, columns, 0.0).sum() / any_.sum())
        counts = {"observations": columns.shape[1], "scored": int(any_.sum()), "unknown": unknown}
        return {"mean_log_likelihood": total, "terms": terms, **counts}

    def log_likelihood(self, table: Any, *, member: int | None = None) -> Any:
        """The table with one column <term>_log_likelihood per term; null where a row is not scored."""
        self._check_fitted()
        source = Table.read(table)
        _, likelihoods = self._log_likelihoods(source, member)
        found = {f"{name}_log_likelihood": words.nulls(x) for name, x in likelihoods.items()}
        return source.with_columns(words.renamed(found, self.schema_.roles.columns))

    def predict(self, table: Any, interval: float | None = 0.9, *, member: int | None = None) -> Any:
        """The table with <value>_mean, _sd, _lower and _upper beside it, each row from its context, never from
        itself; of ordinal values also the most probable level and the probability of each. A model of items alone
        gives the most probable item of each row as <item>_mode, and its probability; recommend gives more of them."""
        if interval is not None and (not isinstance(interval, Real) or not 0 < interval < 1):
            raise DataError(f"interval is a probability between 0 and 1, or None; found {interval!r}.")
        self._check_fitted()
        kind = "item" if self.terms_ == ("item",) else "value"
        terms, source = self._of_kind(kind, "predict", member), Table.read(table)
        groups = self._told(self.schema_.encode(source))
        if kind == "item":
            item, probability = items.modes(terms, groups, len(source))
            found = words.modes(self._vocabulary(), item, probability)
        else:
            found = rows.predictions(terms, self.schema_, groups, len(source), interval)
        return source.with_columns(words.renamed(found, self.schema_.roles.columns))

    def recommend(self, histories: Any = None, k: int = 10, *, member: int | None = None) -> Any:
        """The k most probable further items of each group (past: next; others: missing) with their probabilities: one
        row per group and rank. Without histories, those of an empty one."""
        terms, vocabulary = self._of_kind("item", "recommend", member), self._vocabulary()
        _check_count(k)
        source = None if histories is None else Table.read(histories)
        if source is None or not len(source):
            item, probability = items.first_items(terms, k)
            return words.ranked(source, {}, vocabulary, item[None], probability[None])
        groups = self.schema_.standardise(self.schema_.encode(source))
        if terms[0].support == "distinct":
            groups.check_distinct()
        number, item, probability = items.next_items(terms, groups, k)
        named = words.repeated_names(groups.labels.take(number), groups.columns, item.shape[1])
        return words.ranked(source, named, vocabulary, item, probability)

    def similar(self, item: Any, k: int = 10, *, member: int = 0) -> Any:
        """The k items that go best with this one, and how well, to one member."""
        vocabulary = self._vocabulary()
        _check_count(k)
        number = vocabulary.number(item)
        score = items.closeness(self._one(member), number)
        best = np.argsort(-score, kind="stable")[: min(k, len(score) - 1)]
        return words.frame(None, {**words.item_columns(vocabulary, best), "score": score[best]})

    def embeddings(self, which: str = "item", *, member: int = 0) -> Any:
        """One row per item with its vector: "item" (what it contributes as context) or "centre" (what it is predicted
        with). Vectors of different members are not comparable."""
        vocabulary = self._vocabulary()
        if which not in ("item", "centre"):
            raise DataError(f"embeddings are of 'item' or 'centre'; found {which!r}.")
        vectors = items.item_vectors(self._one(member), "context" if which == "item" else "centre")
        if vectors is None:
            raise DataError(f"This model has no {which} vectors: it has no item term.")
        columns = words.item_columns(vocabulary, np.arange(len(vocabulary)))
        return words.frame(None, {**columns, **{f"v{c}": x for c, x in enumerate(vectors.T.numpy())}})

    def attention(self, table: Any, term: str | None = None, *, member: int = 0) -> looking.Attention:
        """What each row of one group looks at: weights (layer, head, target, context) with labels."""
        self._check_fitted()
        groups = self.schema_.standardise(self.schema_.encode(table))
        return looking.attention(self._one(member), term, groups)

    def summary(self) -> str:
        """Terms, families, sizes and fit, in words."""
        self._check_fitted()
        return words.summary(self)

    def save(self, path: str | Path) -> None:
        """One file, *.efattn, that predicts anywhere without the training data."""
        self._check_fitted()
        saving.save(self, path)

    def _plan(self, table: Any, roles: Roles, validation: Any) -> "Plan":
        self._check()
        self._check_choices()
        if self.context == "past" and not roles.ordered:
            raise DataError(
                "context='past' needs to know what came first: pass order=..., or order='row' for table order."
            )
        schema, groups = Schema.fit_encode(table, roles, **self._sizes())
        terms = named_terms(self.terms, roles, len(schema.vocabulary or ()), groups.notes)
        if schema.when_kind is not None:
            said = f"Column {roles.order!r} says when rows were: attention knows the time between them."
            groups.notes.append(Note("times", said, column=roles.order))
        family = None
        if "value" in terms:
            assert groups.value is not None
            family, notes = choosing.choose(groups.value, roles.of("value"), self.family)
            groups.notes.extend(Note("family", note) for note in notes)
            family.check(groups.value, roles.of("value"), groups.label)
            if roles.exposure is not None and not family.exposures:
                raise DataError(
                    f"{family!r} takes no exposure: 'poisson' and 'negative_binomial' do. Leave exposure out."
                )
        longest = int(groups.lengths.max(initial=1))
        longest = longest if schema.max_length is None else min(longest, schema.max_length)
        plan = self._split(Plan(schema, groups, family, "all", terms, longest), validation)
        if "item" in terms:
            plan.support = chosen_support(self.support, groups, plan.held, groups.notes)
            if plan.support == "distinct" and len(groups.rows) == len(groups) * plan.items and len(terms) > 1:
                said = "Every group has every item, so that items tell nothing: terms='value' is faster."
                groups.notes.append(Note("every item", said))
        for note in groups.notes:
            log.info(str(note))
        return plan

    def _split(self, plan: Plan, validation: Any, standardiser: bool = True) -> Plan:
        groups, schema = plan.groups, plan.schema
        if validation is None or (isinstance(validation, int | float) and validation == 0):
            train, held = groups, None
        elif isinstance(validation, int | float):
            train, held = groups.split(float(validation), self.seed)
        else:
            train, held = groups, schema.encode(validation, need=("value",) if "value" in plan.terms else ())
            if plan.family is not None and held.value is not None:
                plan.family.check(held.value, schema.roles.of("value"), held.label)
        if standardiser:
            schema = schema.fit_standardiser(train, self._how(plan, train))
        plan.schema, plan.train = schema, schema.standardise(train)
        plan.held = None if held is None else schema.standardise(held)
        return plan

    def _how(self, plan: Plan, train: Groups) -> list[str]:
        """Real-valued columns are standardised, by item where there is enough of each to know its mean."""
        if plan.family is None:
            return ["none"] * len(plan.schema.roles.of("value"))
        items_ = len(plan.schema.vocabulary) if plan.schema.vocabulary is not None else 0
        way = self.standardise
        if way == "auto":
            way = "item" if items_ and len(train.rows) >= 10 * items_ else "global"
        found: list[str] = []
        for part, _, _ in plan.family.slices():
            free = isinstance(part, MultivariateGaussian) or (
                isinstance(part, Gaussian) and isinstance(part.noise, str)
            )
            found += [way if free else "none"] * part.columns
        return found

    def _build(self, plan: Plan, start: bool = True, member: int = 0) -> Model:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed + member)
            model = Model(self._terms(plan))
        if start:
            batch = flat(plan.train)
            for name in model.terms:
                model[name].start(batch)
        return model

    def _take(
        self, plan: Plan, models: Sequence[Model], history: Sequence[Record] = (), interrupted: bool = False
    ) -> Any:
        self.schema_, self.family_, self.support_, self.terms_ = plan.schema, plan.family, plan.support, plan.terms
        self.longest_, self.notes_ = plan.longest, [str(note) for note in plan.groups.notes]
        self.sizes_ = {"rows": len(plan.groups.rows), "groups": len(plan.groups)}
        self.members_, self.history_, self.interrupted_ = tuple(models), list(history), interrupted
        self.beside_ = plan.beside
        return self

    def _restore(self, schema: Schema, family: Product | None, about: dict[str, Any]) -> None:
        """The fitted attributes from a file, all but the model."""
        self.schema_, self.family_ = schema, family
        self.support_, self.terms_, self.longest_ = about["support"], tuple(about["terms"]), int(about["longest"])
        self.history_, self.notes_, self.sizes_ = about["history"], about["notes"], about["sizes"]
        self.interrupted_, self.beside_ = False, {}

    def _empty_plan(self) -> Plan:
        return Plan(self.schema_, None, self.family_, self.support_, self.terms_, self.longest_)

    def _empty_model(self) -> Model:
        return Model(self._terms(self._empty_plan()))

    def _check_fits(self, groups: Groups) -> None:
        """Values in the family's support, items as the fitted model allows them."""
        if self.family_ is not None and groups.value is not None:
            self.family_.check(groups.value, self.schema_.roles.of("value"), groups.label)
        if self.support_ == "distinct":
            groups.check_distinct()

    def _check_choices(self) -> None:
        choices = {"context": ("past", "others"), "support": ("auto", "all", "distinct")}
        choices["standardise"] = ("auto", "global", "item", "none")
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise DataError(f"{name} is {', '.join(map(repr, allowed))}; found {getattr(self, name)!r}.")
        if not whole(self.seed, 0):
            raise DataError(f"seed is a whole number >= 0; found {self.seed!r}.")
        if self.training is not None and not isinstance(self.training, Training):
            raise DataError(f"training is an efattn.Training(...) or None; found {self.training!r}.")

    def _told(self, groups: Groups) -> Groups:
        for note in groups.notes:
            log.info(str(note))
        return groups

    @property
    def model_(self) -> Model:
        """The first member, which is the only one unless it is an ensemble."""
        if "members_" not in vars(self):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet, so it has no model_.")
        return self.members_[0]

    def _check_fitted(self) -> None:
        if not hasattr(self, "members_"):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call fit first, or efattn.load a saved one."
            )

    def _asked(self, member: int | None) -> tuple[Model, ...]:
        """One member, or all of them."""
        self._check_fitted()
        return self.members_ if member is None else (self._one(member),)

    def _one(self, member: int) -> Model:
        self._check_fitted()
        if not whole(member, 0) or member >= len(self.members_):
            there = f"0 to {len(self.members_) - 1}" if len(self.members_) > 1 else "0 alone: this is no ensemble"
            raise DataError(f"member is the number of one, {there}; found {member!r}.")
        return self.members_[member]

    def _of_terms(self, member: int | None = None) -> dict[str, tuple[Conditionals, ...]]:
        """Each term of one member; or of all, and of the simple model beside them."""
        models = self._asked(member)
        beside = self.beside_ if member is None else {}
        return {
            name: (*(model[name] for model in models), *([beside[name]] if name in beside else []))
            for name in models[0].terms
        }

    def _of_kind(self, kind: str, verb: str, member: int | None = None) -> tuple[Conditionals, ...]:
        """The item or the value term, as above."""
        for terms in self._of_terms(member).values():
            if terms[0].of_items == (kind == "item"):
                return terms
        raise DataError(
            f"This model has no {kind} term, so it cannot {verb}: fit with {kind}=... and terms including it."
        )

    def _vocabulary(self) -> Any:
        self._check_fitted()
        if self.schema_.vocabulary is None:
            raise DataError("This model knows no items: it was fitted without an item column.")
        return self.schema_.vocabulary

    def _log_likelihoods(self, table: Any, member: int | None) -> tuple[Groups, dict[str, np.ndarray]]:
        terms, source = self._of_terms(member), Table.read(table)
        groups = self._told(self.schema_.encode(source, need=("value",) if "value" in self.terms_ else ()))
        self._check_fits(groups)
        return groups, rows.log_likelihoods(terms, self.schema_, groups, len(source))


def _list(callbacks: Any) -> list[Callable[[Record], object]]:
    return [callbacks] if callable(callbacks) else list(callbacks)


def _check_count(k: Any) -> None:
    if not whole(k, 1):
        raise DataError(f"k is how many to give, a whole number >= 1; found {k!r}.")


def _tuple(names: Any) -> tuple[str, ...]:
    return () if names is None else (names,) if isinstance(names, str) else tuple(names)
