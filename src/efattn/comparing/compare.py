"""Every model on every fold of groups, one after the other or side by side; what is finished is kept as it comes.

table -> folds of groups -> by fold a family, from its training groups -> model by model a fit and a score -> Comparison
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from efattn import __version__
from efattn.comparing import runs
from efattn.comparing.comparison import FORMAT, Comparison, write
from efattn.comparing.competitors import Competitor, check, competitors, reference
from efattn.comparing.runs import Record, Task
from efattn.data import Roles, Schema, Table, group_folds
from efattn.data.keys import distinct
from efattn.data.roles import SEVERAL, SINGLE
from efattn.errors import DataError, named, option
from efattn.estimators import EFA
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages
from efattn.families import PerItem, Product
from efattn.inference import announce

LONGEST = 300  # letters of a family's description: one per item may have thousands


def compare(
    table: Any,
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
    missing: Any = None,
    models: Sequence[Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    jobs: int = 1,
    output: str | Path | None = None,
    progress: bool | None = None,
    **options: Any,
) -> Comparison:
    """EFA beside latent factors and every simple model that suits the table.

    Groups are dealt into folds; each model is fitted to all folds but one and scored on that, so that every group is
    scored once. All see the same rows, have the same family and are measured by their full log-likelihood in the
    table's units.

    Roles are those of `EFA.fit`. options: of EFA, as context="past" or width=64; context, terms, support, lags and
    training hold for the others too. models: names, estimators or simple models, as ["EFA", "LinearModel"] or
    [EFA(width=64), simple.ShrunkMean()]; "peers" is for latent factors and every simple model, which is what there is
    unless said. jobs: so many fits side by side, each in a process with one thread. output: a JSON file that is
    written as results come; where it is there already, finished fits are skipped."""
    roles = {
        "group": group, "item": item, "value": value, "attributes": attributes, "order": order, "time": time,
        "series": series, "exposure": exposure, "noise": noise, "weight": weight, "target": target, "missing": missing,
    }  # fmt: skip
    given = {name: x for name, x in roles.items() if x is not None and x != ()}
    for name, x, least in (("jobs", jobs, 1), ("folds", folds, 2)):
        if not isinstance(x, int) or isinstance(x, bool) or x < least:
            raise DataError(f"{named(name)} is a whole number, {least} or more; found {x!r}.", option=name)
    check(models)
    efa = reference(models, {"seed": seed, **options} if options or not _has_efa(models) else {})
    study = _Study.of(Table.read(table), given, efa, folds, seed)
    chosen, out = competitors(models, study.efa, study.plans[0].blueprint)
    study = replace(study, competitors=tuple(chosen), out=out, output=None if output is None else Path(output))
    return study.run(jobs, progress)


def _has_efa(models: Any) -> bool:
    return any(isinstance(one, EFA) for one in (models if isinstance(models, list | tuple) else [models]))


class _Understood(Exception):
    """Raised out of a fit that has understood its table, before it trains."""

    def __init__(self, blueprint: Blueprint) -> None:
        super().__init__()
        self.blueprint = blueprint


def understood(efa: EFA, table: Any, roles: Mapping[str, Any]) -> Blueprint:
    """What EFA takes a table for."""

    def planned(blueprint: Blueprint) -> None:
        raise _Understood(blueprint)

    try:
        efa.fit(table, **roles, progress=False, planned=planned)
    except _Understood as done:
        return done.blueprint
    raise AssertionError("a fit ended without a plan")


@final
@dataclass(frozen=True)
class _Plan:
    """A fold. family: for all but EFA, which finds it itself; whole: where the training groups' own could not hold the
    test rows, so that all rows chose it, for EFA too."""

    train: np.ndarray
    test: np.ndarray
    family: Product | None
    blueprint: Blueprint
    whole: bool = False


@final
@dataclass(frozen=True)
class _Study:
    table: Table
    roles: Mapping[str, Any]
    efa: EFA
    number: np.ndarray  # of each row's group
    plans: tuple[_Plan, ...]
    about: Mapping[str, Any]
    competitors: tuple[Competitor, ...] = ()
    out: Mapping[str, str] | None = None
    output: Path | None = None

    @classmethod
    def of(cls, table: Table, given: Mapping[str, Any], efa: EFA, folds: int, seed: int) -> "_Study":
        roles = Roles(**given)
        for role in (*SEVERAL, *SINGLE):
            table.require(roles.of(role), role)
        number, count = _numbered(table, roles)
        groups = Schema.fit_encode(table, roles)[1]
        efa = _with_support(efa, groups)
        parts = _folds(table, roles, efa.lags, min(folds, count), seed)
        plans = tuple(_plan(table, given, efa, train, test) for train, test in parts)
        for note in plans[0].blueprint.notes:
            if note.important:
                announce(note)
        about = {
            "roles": roles.to_json(), "context": efa.context, "terms": list(plans[0].blueprint.terms),
            "rows": len(table), "groups": count, "folds": len(parts), "seed": seed, "table": groups.fingerprint(),
            "version": __version__, "families": [repr(plan.family)[:LONGEST] for plan in plans],
            "items": plans[0].blueprint.items,
        }  # fmt: skip
        return cls(table, given, efa, number, plans, about)

    def run(self, jobs: int, progress: bool | None) -> Comparison:
        finished = self._finished()
        missing = [
            (competitor, fold)
            for competitor in self.competitors
            for fold in range(len(self.plans))
            if not any(_same(run, competitor, fold) for run in finished)
        ]
        out = dict(self.out or {})
        with Stages(progress) as stages:
            for record in self._records(missing, jobs, out):
                finished.append(record)
                name, fold = record["model"], record["fold"]
                if "error" in record:
                    if name == self.competitors[0].name:
                        raise DataError(f"{name}, fold {fold + 1}: {record['error']}")
                    out[name] = record["error"]
                stages.tick(name, sum(run["model"] == name for run in finished), len(self.plans))
                stages.say(f"{name}, fold {fold + 1} of {len(self.plans)}: {_told(record)}")
                self._keep(finished, out)
        return self._comparison(finished, out)

    def _records(self, missing: Sequence[tuple[Competitor, int]], jobs: int, out: dict[str, str]) -> Iterator[Record]:
        """As they come; the rest of a model that could not be fitted once is left out."""
        if jobs == 1:
            for competitor, fold in missing:
                if competitor.name not in out:
                    yield runs.run(self._task(competitor, fold))
            return

        bundles: dict[tuple[str, int], list[tuple[Competitor, int]]] = {}
        for competitor, fold in missing:  # a fit of EFA is worth a process of its own; all of a simple model's are
            own = fold if isinstance(competitor.estimator, EFA) else 0
            bundles.setdefault((competitor.name, own), []).append((competitor, fold))

        def run(bundle: Sequence[tuple[Competitor, int]]) -> list[Record]:
            return runs.elsewhere([self._task(*which) for which in bundle])

        with ThreadPoolExecutor(jobs) as pool:
            waiting = [pool.submit(run, bundle) for bundle in bundles.values()]
            try:
                for done in as_completed(waiting):
                    yield from done.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _task(self, competitor: Competitor, fold: int) -> Task:
        plan = self.plans[fold]
        own = isinstance(competitor.estimator, EFA) and not plan.whole
        estimator = competitor.with_family(None if own else plan.family)
        train, test = self.table.take(plan.train), self.table.take(plan.test)
        return Task(
            competitor.name, fold, estimator, competitor.validation, self.roles, train, test, self.number[plan.test],
            look=fold == 0,
        )  # fmt: skip

    def _finished(self) -> list[Record]:
        """What an earlier call has left in the output."""
        if self.output is None or not self.output.exists():
            return []
        saved = Comparison.read(self.output)
        for name in ("table", "roles", "context", "terms", "folds", "seed"):
            if saved.about.get(name) != self.about[name]:
                raise DataError(
                    f"{str(self.output)!r} holds another comparison: its {name} differ. Choose another file, or "
                    "delete this one.",
                    option="output",
                )
        return [run for run in saved.runs if "error" not in run]

    def _keep(self, finished: Sequence[Record], out: Mapping[str, str]) -> None:
        if self.output is not None:
            names = [one.name for one in self.competitors]
            write(
                self.output,
                {"format": FORMAT, "about": dict(self.about), "models": names, "out": dict(out), "runs": finished},
            )

    def _comparison(self, finished: Sequence[Record], out: Mapping[str, str]) -> Comparison:
        competing = [one for one in self.competitors if one.name not in out]
        kept = [run for run in finished for one in competing if _same(run, one, run["fold"]) and "error" not in run]
        order = {one.name: k for k, one in enumerate(competing)}
        kept.sort(key=lambda run: (order[run["model"]], run["fold"]))
        comparison = Comparison(self.about, tuple(order), out, kept, self.table.kind)
        if self.output is not None:
            comparison.write(self.output)
        return comparison


def _same(run: Record, competitor: Competitor, fold: int) -> bool:
    mine = (competitor.name, fold, runs.told(competitor.estimator))
    return (run["model"], run["fold"], run["options"]) == mine


def _told(record: Record) -> str:
    if "error" in record:
        return f"out, {record['error']}"
    means = [f"{sum(x['sum']) / sum(x['rows']):.4f}" for x in record["terms"].values() if sum(x["rows"])]
    return f"{' and '.join(means)} nats a row, {record['seconds']:.1f} s"


def _numbered(table: Table, roles: Roles) -> tuple[np.ndarray, int]:
    """The group of each row, and how many there are."""
    wanted = f"each is scored by what was fitted to others. Pass {option('group')}, which has two or more"
    if not roles.of("group"):
        raise DataError(f"Models are compared over groups: {wanted}.", option="group")
    number, labels = distinct(table.columns(roles.of("group"), "group"), "group", len(table), sort=True)
    if len(labels) < 2:
        raise DataError(
            f"There is {'one group' if len(labels) else 'no group'}, and models are compared over groups: {wanted}.",
            column=roles.of("group")[0],
            option="group",
        )
    return number, len(labels)


def _folds(table: Table, roles: Roles, lags: int, folds: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of groups at random; with lags, spans of time, so that what came earlier stays beside what came later."""
    if not lags:
        return group_folds(table, roles.of("group"), folds, seed)
    when, labels = distinct(table.columns(roles.of("time"), "time"), "time", len(table), sort=True)
    if len(labels) < folds:
        raise DataError(f"{len(labels)} times cannot make {folds} folds.", option="folds")
    mine = when * folds // max(len(labels), 1)
    return [(np.flatnonzero(mine != k), np.flatnonzero(mine == k)) for k in range(folds)]


def _with_support(efa: EFA, groups: Any) -> EFA:
    """auto is decided by all groups: whether an item may repeat says how the table came about."""
    if efa.support != "auto" or groups.item is None:
        return efa
    try:
        groups.check_distinct()
    except DataError:
        return type(efa)(**{**efa.get_params(deep=False), "support": "all"})
    return efa


def _plan(table: Table, roles: Mapping[str, Any], efa: EFA, train: np.ndarray, test: np.ndarray) -> _Plan:
    blueprint = understood(efa, table.take(train), roles)
    family, values = blueprint.family, blueprint.schema.roles.of("value")
    if family is None or "value" not in blueprint.terms:
        return _Plan(train, test, None, blueprint)
    held = blueprint.schema.encode(Table.read(table.take(test)), need=("value",))
    try:
        assert held.value is not None
        family.check(held.value, values, held.label, item=held.item)
    except DataError:
        family = _of_items(understood(efa, table.native, roles), blueprint)
        return _Plan(train, test, family, blueprint, whole=True)
    return _Plan(train, test, family, blueprint)


def _of_items(whole: Blueprint, mine: Blueprint) -> Product:
    """The family of all rows for the items of some of them."""
    assert whole.family is not None
    if whole.schema.vocabulary is None or mine.schema.vocabulary is None:
        return whole.family
    number = whole.schema.vocabulary.numbers(mine.schema.vocabulary.known)
    parts = [
        replace(part, kinds=tuple(part.kinds[k] for k in number)) if isinstance(part, PerItem) else part
        for part in whole.family.parts
    ]
    return Product(tuple(parts))
