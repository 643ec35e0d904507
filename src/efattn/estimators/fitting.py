"""One fit, from what it is fitted to, to a model that can be asked.

    blueprint -> networks of each part, trained -> companions and their shares -> all groups once more -> Fitted

A part is a fold, or all of the table but what is held out. The estimator has what is known so far at any time, so that
an interrupt keeps it.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from efattn.errors import Note
from efattn.estimators import companions, members, missing_values, new_items, saving, shares, telling
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages, line_writer, listed
from efattn.inference import Companion
from efattn.models import Model
from efattn.simple import Recipe
from efattn.training import Checkpoint, Record, Training, memory, resolve_device, teams, threads

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator


@final
@dataclass(frozen=True)
class Course:
    """Where a fit is kept while it goes on, and who hears of it; planned: told instead of the user what is fitted."""

    checkpoint: str | Path | None = None
    resume: bool = False
    callbacks: Iterable[Callable[[Record], object]] = ()
    history: str | Path | None = None
    progress: bool | None = None
    planned: Callable[[Blueprint], object] | None = None

    @classmethod
    def of(cls, how: Mapping[str, Any]) -> "Course":
        known = [one.name for one in fields(cls)]
        for name in how:
            if name not in known:
                raise TypeError(f"fit_wide() got an unexpected keyword argument {name!r}; it takes {', '.join(known)}.")
        return cls(**how)

    def begun(self) -> "Course":
        """With every epoch written to the history, which is opened now."""
        writers = [line_writer(self.history)] if self.history is not None and teams.first() else []
        return replace(self, callbacks=[*listed(self.callbacks), *writers])


def fit(estimator: "GroupEstimator", blueprint: Blueprint, stages: Stages, course: Course) -> None:
    """The estimator has it then, and what did not see the groups held out."""
    options = estimator._options()
    blueprint = estimator._network(blueprint, options, stages)
    kept = members.checkpoint(estimator, course.checkpoint, course.resume, blueprint, options)
    train = members.groups_of(blueprint)
    with saving.without_memory():
        empty = Model(estimator._terms(blueprint))
    memory.check(empty, train, options, resolve_device(options))
    claimed = contextlib.nullcontext() if kept is None else kept.claimed(course.resume)
    with claimed, threads.suited_to(train.count):
        _Fit(estimator, blueprint, options, stages, course, kept).run()
    estimator._kept = None if estimator.fitted_.interrupted else kept
    if teams.current() is not None and not estimator.fitted_.interrupted:
        known = teams.told("the model", lambda: (estimator.fitted_, estimator.first_fits_))
        estimator.fitted_, estimator.first_fits_ = known


@final
@dataclass(frozen=True)
class _Fit:
    estimator: "GroupEstimator"
    blueprint: Blueprint
    options: Training
    stages: Stages
    course: Course
    kept: Checkpoint | None

    def run(self) -> None:
        """Networks and companions of each part, the shares that groups held out ask for, and then all groups."""
        some = self.blueprint.light()
        recipes = companions.recipes(self.estimator.companions, some.parts[0], self.estimator.context)
        offers: list[dict[str, list[companions.Offer]]] = [{} for _ in some.parts]
        fits = self._offers(offers, recipes, some)
        trained = self._networks(fits, self._bars(fits, offers, some))
        if trained.interrupted or not teams.first():
            self.estimator._take(self.blueprint, *trained)
            if not trained.interrupted and self._fits_again:  # with the first, which does the rest
                self._networks_again(trained)
            return
        for _ in fits:  # those that were not fitted meanwhile
            pass
        chosen = self._mixed(some, trained, offers)
        if self.blueprint.folds or self._fits_again:
            networks = trained.models if self.blueprint.folds else self._networks_again(trained)
            if networks:
                self._know_all(networks, offers, chosen)

    @property
    def _network_parts(self) -> list[Blueprint]:
        """What each network is fitted to."""
        return [part for part in self.blueprint.parts for _ in range(self.estimator._members(self.blueprint))]

    @property
    def _part_options(self) -> Training:
        """The options of one part: all folds together take about as many steps as one fit."""
        folds = len(self.blueprint.folds)
        if not folds or self.options.steps is not None:
            return self.options
        return replace(self.options, steps=self.options.planned_steps // folds)

    @property
    def _fits_again(self) -> bool:
        """Whether networks are fitted once more to all groups."""
        return not self.blueprint.folds and self.blueprint.may_refit and self.estimator._refits

    def _bars(self, fits: Iterable[object], offers: Any, some: Blueprint) -> list[dict[str, float]]:
        """What the network of each fold has to come near, where it may be given up: simple models come first then."""

        def scores() -> list[dict[str, float]]:
            for _ in fits:
                pass
            return shares.of_offers(some.parts, offers)

        if not self.blueprint.folds or not self.estimator._gives_up(self.options):
            return []
        number, found = self.estimator._members(self.blueprint), teams.told("simple models", scores)
        return [mine for mine in found for _ in range(number)]

    def _networks(self, meanwhile: Iterable[object], bars: Sequence[Mapping[str, float]]) -> members.Trained:
        models = [self.estimator._build(part, member=k) for k, part in enumerate(self._network_parts)]
        how: dict[str, Any] = {"callbacks": self.course.callbacks, "kept": self.kept, "resume": self.course.resume}
        how |= {"bars": bars, "meanwhile": meanwhile}
        return members.train(models, self._network_parts, self._part_options, self.estimator.seed, self.stages, **how)

    def _offers(self, into: Any, recipes: Sequence[Recipe], some: Blueprint) -> Iterator[None]:
        """Fit simple models that may stand beside the networks, by part and term."""
        estimator, options = self.estimator, self._part_options
        how: dict[str, Any] = {"offers": isinstance(estimator.companions, str), "stages": self.stages}
        return companions.fitted_offers(into, recipes, some.parts, estimator.context, options, estimator.seed, **how)

    def _mixed(self, some: Blueprint, trained: members.Trained, offers: Any) -> companions.Shares:
        """The estimator has networks and companions of the first part, in the shares that are chosen."""
        estimator, parts = self.estimator, self.blueprint.parts
        number = estimator._members(self.blueprint)
        networks = [trained.models[k * number : (k + 1) * number] for k in range(len(parts))]
        usual, powers, moves, told, scores = shares.chosen(some.parts, networks, offers, trained.history)
        holes = missing_values.chosen(some.parts, networks, offers, usual, trained.history)
        how: Any = (estimator.context, self._part_options, estimator.seed, self.stages)
        new, more = new_items.chosen(some.parts, networks, offers, *how)
        chosen = companions.Shares(usual, new, holes, powers, moves)
        notes = [] if some is self.blueprint else [telling.sampled(some)]
        notes += [*members.unfinished(trained, self._part_options), *members.given_up(trained), *told, *more]
        beside = [companions.beside(mine, chosen) for mine in offers]
        estimator._take(self.blueprint.noted(*notes), *trained, companions=beside[0])
        fitted = replace(estimator.fitted_, held_out=scores, powers=_firsts(powers), moves=_firsts(moves))
        estimator.fitted_ = fitted
        estimator.first_fits_ = tuple(
            replace(fitted, schema=part.schema, members=mine, companions=simple)
            for part, mine, simple in zip(parts, networks, beside, strict=True)
        )
        telling.conclude(fitted, notes, self.stages)
        return chosen

    def _networks_again(self, trained: members.Trained) -> tuple[Model, ...]:
        """Fitted to all groups, for the steps that served; none where that is interrupted. Their history stays that of
        the first fit."""
        estimator, whole = self.estimator, self.blueprint.whole()
        models = [estimator._build(whole, member=k) for k in range(len(trained.models))]
        served = members.replays(trained, self.blueprint, self.options, estimator.seed)
        how: dict[str, Any] = {"kept": None if self.kept is None else self.kept.of_refit()}
        how |= {"resume": self.course.resume, "replays": served}
        second = members.train(models, [whole] * len(models), self.options, estimator.seed, self.stages, **how)
        if second.interrupted:
            estimator.fitted_ = replace(estimator.fitted_, interrupted=True)
            return ()
        for new, old in zip(second.models, trained.models, strict=True):
            members.as_sure(new, old)
        return second.models

    def _know_all(self, networks: Sequence[Model], offers: Any, chosen: companions.Shares) -> None:
        """The estimator has what knows all groups."""
        estimator, folds = self.estimator, len(self.blueprint.folds)
        how: Any = (estimator.context, self._part_options, estimator.seed, self.stages)
        beside: dict[str, tuple[Companion, ...]]
        beside = companions.fitted_to_all(offers, chosen, self.blueprint.whole().light(), *how)
        note = Note("refit", telling.FOLDS.format(folds) if folds else telling.REFIT, option="refit")
        notes = (*estimator.fitted_.notes, note)
        estimator.fitted_ = replace(estimator.fitted_, members=tuple(networks), companions=beside, notes=notes)
        self.stages.say(str(note))


def _firsts(several: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """By term, what the networks have, as far as it is not nothing."""
    return {name: each[0] for name, each in several.items() if each[0] != ()}
