"""Scikit-learn's shell around a fit: options in the constructor, column roles in `fit`, questions to the fitted value.

    fit:  table -> blueprint -> networks, trained -> companions and their shares -> Fitted

Subclasses say which terms they build; the rest is the same for all.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from efattn.data import Roles, Schema, Table
from efattn.data.fingerprints import seen_by
from efattn.data.stored import Stored, source_of
from efattn.errors import DataError, option
from efattn.estimators import (
    deciding,
    described,
    fitting,
    saving,
    telling,
    updating,
)
from efattn.estimators import families as choosing
from efattn.estimators import wide as wide_tables
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.fitting import Course
from efattn.estimators.looking import mean_log_jacobian
from efattn.estimators.preparing import prepare
from efattn.estimators.progress import Stages, listed
from efattn.estimators.questions import Questions
from efattn.families import Product
from efattn.inference import Companion, Fitted
from efattn.inference.lengths import length_counts
from efattn.models import Conditionals, Model
from efattn.options import fit_words
from efattn.training import Checkpoint, Record, Training, teams


class GroupEstimator(Questions, BaseEstimator, ABC):
    """fitted_ holds all that a fit gives (`efattn.inference.Fitted`); schema_, model_ (terms by name), members_ (of an
    ensemble, of which model_ is the first), companions_ (by term), family_ (of the value columns), support_, terms_,
    history_, notes_ and interrupted_ are read off it. Where a method has member=, None is for the mixture of all
    members and companions."""

    # what every subclass's constructor has
    family: Any
    context: Any  # of network.Context; not all estimators have each
    terms: Any
    support: Any
    standardise: Any
    seed: int
    training: Training | None
    ensemble: Any = 1  # members; a constructor may have it
    companions: Any = None  # likewise
    refit: Any = False  # likewise
    own_time: Any = "known"  # likewise
    own_attributes: Any = None  # likewise; None where an item term never looks at attributes
    _takes_features: bool = False  # of items
    fitted_: Fitted
    first_fits_: tuple[Fitted, ...]  # what did not see the groups held out: before a second fit, or of each fold
    _kept: Checkpoint | None = None  # what the last fit wrote to, until the model is saved

    @abstractmethod
    def _check(self) -> None:
        """A DataError for a parameter that cannot be."""

    @abstractmethod
    def _terms(self, blueprint: Blueprint) -> dict[str, Conditionals]:
        """The terms to train, untrained."""

    def _network(self, blueprint: Blueprint, options: Training, stages: Stages) -> Blueprint:
        """The same, with the sizes of a network that were left open."""
        return blueprint

    def _options(self) -> Training:
        return self.training or Training()

    def _members(self, blueprint: Blueprint) -> int:
        """How many."""
        return self.ensemble

    def _gives_up(self, options: Training) -> bool:
        """Whether a network that stays far behind simple models may be given up."""
        return False

    @property
    def _refits(self) -> bool:
        """Whether there may be folds, or a second fit."""
        return bool(self.refit)

    @abstractmethod
    def _schema_options(self) -> dict[str, Any]:
        """lags, max_length and when, for the schema."""

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
        noise: str | None = None,
        weight: str | None = None,
        target: str | None = None,
        item_features: Any = None,
        missing: Any = None,
        validation: Any = "auto",
        on_disk: bool | str = "auto",
        checkpoint: str | Path | None = None,
        resume: bool = False,
        callbacks: Iterable[Callable[[Record], object]] = (),
        history: str | Path | None = None,
        progress: bool | None = None,
        planned: Callable[[Blueprint], object] | None = None,
    ) -> Any:
        self._check()
        value = choosing.ordered(self.family, value)
        roles = Roles(group, item, value, attributes, order, time, series, exposure, weight, target, missing, noise)
        course = Course(checkpoint, resume, callbacks, history, progress, planned)
        source = source_of(table, on_disk)
        return self._fit_table(source, roles, self.family, self.terms, validation, course, features=item_features)

    fit.__doc__ = f"Fit to a frame or a file.\n\n{fit_words()}"

    def fit_wide(
        self,
        table: Any,
        y: None = None,
        *,
        id: str | None = None,
        exclude: str | Sequence[str] = (),
        missing: Any = None,
        validation: Any = "auto",
        **how: Any,
    ) -> Any:
        """Fit to a wide table of mixed columns: a row is a group, a column an item with a family of its own, which is
        chosen by what it holds (numbers, counts, yes or no, ordered categories, words) unless family={"age": "poisson"}
        says it. Empty cells may be anywhere. predict, impute and the others then take such tables, and give them back.

        id: a column that names rows; exclude: columns that are not modelled; missing: codes such as -1 for an empty
        cell; validation and all else: as in fit."""
        self._check()
        plan = wide_tables.plan(self, Table.read(table), id, exclude, missing)
        held = plan.held(validation)
        return self._fit_table(plan.long, plan.roles, plan.family, "value", held, Course.of(how), wide=plan)

    def _fit_table(
        self,
        source: Table | Stored,
        roles: Roles,
        family: Any,
        terms: Any,
        validation: Any,
        course: Course,
        *,
        wide: wide_tables.Plan | None = None,
        features: Any = None,
    ) -> Any:
        course = course.begun()
        if self.context == "past" and not roles.ordered:
            wanted = f"pass {option('order')}, or {option('order', 'row')} for table order"
            raise DataError(f"{option('context', 'past')} needs to know what came first: {wanted}.", option="order")
        blueprint = prepare(
            source,
            roles,
            family=family,
            terms=terms,
            support=self.support,
            standardise=self.standardise,
            validation=validation,
            seed=self.seed,
            sizes=self._schema_options(),
            own_time=self.context != "past" if self.own_time == "auto" else self.own_time == "known",
            own_attributes=self.own_attributes,
            context=self.context,
            folds=self._refits,
            decide=lambda draft: teams.told(
                "families", lambda: deciding.decided(draft, self.context, self.standardise, self.seed)
            ),
        )
        if self.refit is True and blueprint.held is not None and not blueprint.may_refit:
            share = f"{option('validation', 0.2)}, a share of its own groups, or {option('refit', 'auto')}"
            raise DataError(f"{option('refit', True)} fits to all of this table: pass {share}.", option="refit")
        more = None if features is None else described.known(features, blueprint.schema, self._takes_features)
        blueprint = blueprint if more is None else blueprint.with_features(more)
        self._frames, self._wide = source.kind if wide is None else wide.frames, None if wide is None else wide.layout
        blueprint = blueprint if wide is None else blueprint.noted(*wide.notes)
        with Stages(course.progress) as stages:
            (course.planned or functools.partial(telling.describe, stages=stages, wide=wide is not None))(blueprint)
            self._fit(blueprint, stages, course)
        if more is not None:
            self.fitted_ = described.with_new_items(self, self.fitted_, more)
        return self

    def _fit(self, blueprint: Blueprint, stages: Stages, course: Course) -> Any:
        fitting.fit(self, blueprint, stages, course)
        return self

    def update(
        self,
        table: Any,
        *,
        validation: Any = 0.2,
        training: Training | None = None,
        target: str | None = None,
        item_features: Any = None,
        callbacks: Iterable[Callable[[Record], object]] = (),
        progress: bool | None = None,
    ) -> Any:
        """Go on training on new rows with the same columns: standardisers stay, new items are appended, companions stay
        as they are. How far the networks move is chosen by rows of `validation`: not at all unless these are surely
        predicted better, so that what was known is not lost; items that the table lacks stay as they were. Its rows may
        be whole histories of which `target` marks what is new. item_features: of new items, in the columns of the fit.
        training: by default as in fit, at a third of its rate."""
        how: dict[str, Any] = {"validation": validation, "training": training, "target": target, "progress": progress}
        how |= {"item_features": item_features, "callbacks": listed(callbacks)}
        updating.update(self, self._fitted(), table, **how)
        return self

    def save(self, path: str | Path) -> None:
        """One file, *.efattn, that predicts anywhere without the training data. What a finished fit left in its
        checkpoint folder goes, now that it is safe elsewhere."""
        saving.save(self._fitted(), path)
        if self._kept is not None:
            self._kept.clear()
        self._kept = None

    def untrained(self, seed: int = 0) -> Model:
        """A network of the make of the fitted one, with other random weights."""
        fitted = self._fitted()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Model(self._terms(Blueprint.of(fitted)))

    @property
    def schema_(self) -> Schema:
        return self._attribute("schema")

    @property
    def family_(self) -> Product | None:
        return self._attribute("family")

    @property
    def support_(self) -> str:
        return self._attribute("support")

    @property
    def terms_(self) -> tuple[str, ...]:
        return self._attribute("terms")

    @property
    def members_(self) -> tuple[Model, ...]:
        return self._attribute("members")

    @property
    def model_(self) -> Model:
        """The first member, which is the only one unless it is an ensemble."""
        return self._attribute("members")[0]

    @property
    def companions_(self) -> dict[str, tuple[Companion, ...]]:
        return dict(self._attribute("companions"))

    @property
    def history_(self) -> list[Record]:
        return list(self._attribute("history"))

    @property
    def notes_(self) -> list[Any]:
        return list(self._attribute("notes"))

    @property
    def interrupted_(self) -> bool:
        return self._attribute("interrupted")

    def _attribute(self, name: str) -> Any:
        if "fitted_" not in vars(self):
            raise AttributeError(f"This {type(self).__name__} is not fitted yet, so it has no {name}_.")
        return getattr(self.fitted_, name)

    def _fitted(self) -> Fitted:
        if "fitted_" not in vars(self):
            raise NotFittedError(
                f"This {type(self).__name__} is not fitted yet: call fit first, or efattn.load a saved one."
            )
        return self.fitted_

    def _build(self, blueprint: Blueprint, start: bool = True, member: int = 0) -> Model:
        with torch.random.fork_rng():
            torch.manual_seed(self.seed + member)
            model = Model(self._terms(blueprint))
        if start:
            assert blueprint.train is not None
            batch = blueprint.train.flat()
            for name in model.terms:
                model[name].start(batch)
        return model

    def _take(
        self,
        blueprint: Blueprint,
        models: Sequence[Model],
        history: Sequence[Record] = (),
        interrupted: bool = False,
        *,
        companions: dict[str, tuple[Companion, ...]] | None = None,
    ) -> Any:
        groups, train = blueprint.groups, blueprint.train
        assert groups is not None
        assert train is not None
        units = {blueprint.value_name: mean_log_jacobian(blueprint, train)} if "value" in blueprint.terms else {}
        self.fitted_ = Fitted(
            estimator=type(self).__name__,
            parameters=self.get_params(deep=False),
            schema=blueprint.schema,
            family=blueprint.family,
            support=blueprint.support,
            terms=blueprint.terms,
            longest=blueprint.longest,
            members=tuple(models),
            companions=companions or {},
            history=tuple(history),
            notes=blueprint.notes,
            sizes={"rows": groups.count, "groups": len(groups)},
            units=units,
            network=blueprint.network,
            frames=getattr(self, "_frames", "polars"),
            interrupted=interrupted,
            seen=seen_by(groups, blueprint.held),
            wide=getattr(self, "_wide", None),
            lengths=length_counts(groups.lengths),
        )
        self.first_fits_ = (self.fitted_,)
        return self
