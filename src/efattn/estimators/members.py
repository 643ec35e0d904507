"""The members of an ensemble: models of one make, fitted to the same groups from other start values in another order.

Member k is trained with the estimator's seed plus k, each until it stops by itself. An estimator that is no ensemble
has one member, and nothing here shows. Where each group is held out once, every fold has members of its own.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from efattn import __version__
from efattn.data import Groups
from efattn.errors import DataError, Note, named, option
from efattn.estimators import saving
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages
from efattn.models import Model
from efattn.training import Checkpoint, Fitting, Record, Replay, Training, resolve_device, teams, threads
from efattn.training.checkpoint import fingerprint
from efattn.training.processes import side_by_side, spare, with_help

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator

log = logging.getLogger("efattn")
MOST = 1000
MANY = 20  # epochs, below which nobody expects an end


class Trained(NamedTuple):
    """What training gives. history: of one member after the other."""

    models: tuple[Model, ...]
    history: list[Record]
    interrupted: bool


def train(
    models: Sequence[Model],
    blueprints: Sequence[Blueprint],
    options: Training,
    seed: int,
    stages: Stages,
    *,
    callbacks: Iterable[Callable[[Record], object]] = (),
    kept: Checkpoint | None = None,
    resume: bool = False,
    before: Sequence[Record] | None = None,
    replays: Mapping[int, Mapping[str, Replay]] | None = None,
    bars: Sequence[Mapping[str, float]] = (),
    meanwhile: Iterable[object] = (),
) -> Trained:
    """blueprints: what each is fitted to; replays: by member and term, what a second fit goes through once more;
    bars: of each, by term, the score of simple models, of which one that stays far away is given up; meanwhile: what
    may be done here, piece by piece, while others are trained elsewhere; before: the history of an earlier fit that
    these models go on from; without one, an interrupt keeps the members that are finished, and drops those that know
    nothing yet."""
    several = len(models) > 1
    if options.seconds is not None:
        options = replace(options, seconds=options.seconds / len(models))
    fittings = [
        Fitting(
            model,
            groups_of(blueprint),
            blueprint.held,
            options,
            seed + k,
            kept.of_member(k) if several and kept is not None else kept,
            [*callbacks, stages.epoch],
            partial(stages.tick, member=k if several else None, fold=blueprint.fold),
            history=[record for record in before or () if record.get("member", 0) == k],
            label=_label(k, blueprint, several),
            roles=blueprint.schema.roles,
            replays={} if replays is None else replays[k],
            team=teams.current(),
            bars=bars[k] if bars else {},
            large=blueprint.in_large_batches,
        )
        for k, (model, blueprint) in enumerate(zip(models, blueprints, strict=True))
    ]
    finished = sorted(_run(fittings, resume, options, meanwhile))
    elsewhere = options.jobs not in (1, "auto") and teams.current() is None
    chosen = _chosen(len(fittings), finished, elsewhere) if before is None else list(range(len(fittings)))
    history = _history(fittings, chosen)
    return Trained(tuple(fittings[k].model for k in chosen), history, len(finished) < len(fittings))


def _label(member: int, blueprint: Blueprint, several: bool) -> dict[str, int]:
    return ({"member": member} if several else {}) | ({} if blueprint.fold is None else {"fold": blueprint.fold})


def groups_of(blueprint: Blueprint) -> Groups:
    assert blueprint.train is not None
    return blueprint.train


def unfinished(trained: Trained, options: Training) -> list[Note]:
    """What still improved when its epochs were over."""
    names = list(dict.fromkeys(record["term"] for record in trained.history))
    late = [name for name in names if any(_late(mine) for mine in _runs(trained.history, name))]
    more = "steps" if options.epochs is None else "epochs"
    words = "was still getting better when its training ended"
    return [Note("still improving", f"{name!r} {words}: allow more {named(more)}.", option=more) for name in late]


def given_up(trained: Trained) -> list[Note]:
    """Whose training was given up, as simple models are far ahead."""
    found = list[Note]()
    for name in dict.fromkeys(record["term"] for record in trained.history):
        runs = _runs(trained.history, name)
        ends = [run[-1]["epoch"] for run in runs if run[-1].get("given_up")]
        if ends:
            words = f"Training of {name!r} was given up after {ends[0]} epochs"
            words += f" in {len(ends)} of {len(runs)} folds" if len(runs) > 1 else ""
            words += ": simple models are further ahead than the network would have made up."
            found.append(Note("given up", f"{words} With {named('epochs')} of your own all are run.", option="epochs"))
    return found


def _runs(history: Sequence[Record], name: str) -> list[list[Record]]:
    """The records of a term, by member."""
    members = dict.fromkeys(record.get("member", 0) for record in history)
    return [[x for x in history if x["term"] == name and x.get("member", 0) == member] for member in members]


def _late(records: Sequence[Record]) -> bool:
    """Whether the last tenth of all planned epochs had the best, and more than the first few."""
    scores = [record["validation"] for record in records]
    if len(scores) < MANY or None in scores or records[-1]["epoch"] < records[-1]["epochs"]:
        return False
    return scores.index(max(scores)) >= 0.9 * len(scores)


def replays(trained: Trained, blueprint: Blueprint, options: Training, seed: int) -> dict[int, dict[str, Replay]]:
    """By member and term, what served in its fit."""
    served = dict[int, dict[str, Replay]]()
    for k, model in enumerate(trained.models):
        mine = [record for record in trained.history if record.get("member", 0) == k]
        by_term = {name: [record for record in mine if record["term"] == name] for name in model.terms}
        settled = {name: options.settled(large=name in blueprint.in_large_batches) for name in by_term}
        served[k] = {
            name: replay(some, epoch_steps(blueprint, settled[name], seed + k), settled[name])
            for name, some in by_term.items()
        }
    return served


@torch.no_grad()
def as_sure(new: Model, old: Model) -> None:
    """Give a model of all groups the sharpness that held-out groups asked for."""
    for name in new.terms:
        mine, theirs = new[name].sharpness, old[name].sharpness
        if mine is not None and theirs is not None:
            mine.copy_(theirs)


def epoch_steps(blueprint: Blueprint, options: Training, seed: int) -> int:
    batches = len(groups_of(blueprint).plan(options.cells, shuffle=seed, epoch=0))
    return batches * options.passes_for(batches)


def replay(records: Iterable[Record], batches: int, options: Training) -> Replay:
    return Replay.of(records, batches, goes_back=options.decay == "plateau" and options.patience is not None)


def _chosen(number: int, finished: list[int], elsewhere: bool) -> list[int]:
    """Which members to keep. A first one that was not finished has its best weights, unless another process had."""
    if number == 1 or len(finished) == number:
        return list(range(number))
    if not finished and elsewhere:
        log.warning("Interrupted before any of the %d members was finished: nothing is kept.", number)
        raise KeyboardInterrupt
    chosen = finished or [0]
    log.warning("Interrupted with %d of %d members finished: keeping %d.", len(finished), number, len(chosen))
    return chosen


def _history(fittings: Sequence[Fitting], chosen: Sequence[int]) -> list[Record]:
    """Of the chosen members, numbered anew."""
    if len(fittings) == 1:
        return fittings[0].history
    return [{**record, "member": n} for n, k in enumerate(chosen) for record in fittings[k].history]


def _run(fittings: Sequence[Fitting], resume: bool, options: Training, meanwhile: Iterable[object]) -> list[int]:
    """Those that were finished. With a checkpoint, each waits in its folder until all are."""
    several = len(fittings) > 1
    done = [k for k, fitting in enumerate(fittings) if several and resume and fitting.taken_back()]
    todo = {k: fitting for k, fitting in enumerate(fittings) if k not in done}
    if several and options.jobs not in (1, "auto") and fittings[0].team is None:
        running = side_by_side(todo, resume, int(options.jobs))
    else:
        running = with_help(todo, resume, _helpers(fittings[0], options), meanwhile)
    with contextlib.closing(running) as finished:
        return [*done, *finished]


def _helpers(fitting: Fitting, options: Training) -> int:
    """What takes several threads, or a GPU, has no use for more processes, nor has what several work at together."""
    if fitting.team is not None:
        return 0
    alone = options.jobs == 1 or fitting.data.count >= threads.SMALL or resolve_device(options).type != "cpu"
    return 0 if alone else spare()


def checkpoint(
    estimator: "GroupEstimator", folder: str | Path | None, resume: bool, blueprint: Blueprint, options: Training
) -> Checkpoint | None:
    """Data, columns and options must be the same to go on, and in all processes of a fit; how often it is written and
    how many train at a time need not. Of several processes the first has it."""
    team = teams.current()
    if folder is None and resume:
        needs = f"{option('resume', True)} needs {option('checkpoint')}"
        raise DataError(f"{needs}, the folder that the interrupted fit wrote to.", option="resume")
    if folder is None and team is None:
        return None
    given = estimator.get_params(deep=False) | {"training": replace(options, checkpoint_seconds=0.0, jobs=1)}
    about = {"version": __version__, "columns": blueprint.schema.roles.to_json(), "options": saving.plain(given)}
    about["data"] = fingerprint(*(groups for part in blueprint.parts for groups in (part.train, part.held)))
    known = blueprint.schema.features
    about |= {} if known is None else {"features": known.fingerprint}
    if team is not None:
        team.agree(about)
    if folder is None or not teams.first():
        return None
    return Checkpoint(Path(folder), about, options.checkpoint_seconds)
