"""The members of an ensemble: models of one make, fitted to the same groups from other start values in another order.

Member k is trained with the estimator's seed plus k, each until it stops by itself. An estimator that is no ensemble
has one member, and nothing here shows.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from efattn.errors import DataError
from efattn.estimators import saving
from efattn.estimators.plan import Plan
from efattn.estimators.progress import Bar
from efattn.models import Model
from efattn.training import Checkpoint, Fitting, Record, Training
from efattn.training.checkpoint import fingerprint

if TYPE_CHECKING:
    from efattn.estimators.base import GroupEstimator

log = logging.getLogger("efattn")
FINISHED = "finished.checkpoint"
MOST = 1000


class Fitted(NamedTuple):
    """What training gives. history: of one member after the other."""

    models: tuple[Model, ...]
    history: list[Record]
    interrupted: bool


def fitted(
    models: Sequence[Model],
    plan: Plan,
    options: Training,
    seed: int,
    *,
    callbacks: Iterable[Callable[[Record], object]] = (),
    progress: bool | None = None,
    kept: Checkpoint | None = None,
    resume: bool = False,
    before: Sequence[Record] | None = None,
) -> Fitted:
    """Train them. before: the history of an earlier fit that these models go on from; without one, an interrupt keeps
    the members that are finished, and drops those that know nothing yet."""
    several = len(models) > 1
    with Bar(progress) as bar:
        fittings = [
            Fitting(
                model,
                plan.train,
                plan.held,
                options,
                seed + k,
                _own(kept, k) if several else kept,
                [*callbacks, bar.epoch],
                partial(bar.tick, member=k) if several else bar.tick,
                history=[record for record in before or () if record.get("member", 0) == k],
                label={"member": k} if several else {},
            )
            for k, model in enumerate(models)
        ]
        finished = _in_turn(fittings, resume) if several else _alone(fittings[0], resume)
    interrupted = finished < len(fittings)
    trained = fittings if before is not None else fittings[: max(finished, 1)]
    if interrupted and several:
        rest = f"keeping {len(trained)}" if before is None else "the rest stay as they were"
        log.warning("Interrupted with %d of %d members finished: %s.", finished, len(fittings), rest)
    history = [record for fitting in trained for record in fitting.history]
    return Fitted(tuple(fitting.model for fitting in trained), history, interrupted)


def _alone(fitting: Fitting, resume: bool) -> int:
    fitting.run(resume)
    return 0 if fitting.interrupted else 1


def _in_turn(fittings: Sequence[Fitting], resume: bool) -> int:
    """One after the other; how many were finished. Those that are wait in the checkpoint's folder for the last."""
    marks = [_mark(fitting.checkpoint) for fitting in fittings]
    for mark in marks:
        if mark is not None:
            mark.prepare()
            if not resume:
                mark.remove()
    for number, (fitting, mark) in enumerate(zip(fittings, marks, strict=True)):
        if mark is None or not _taken_back(fitting, mark):
            fitting.run(resume)
            if fitting.interrupted:
                return number
            if mark is not None:
                tensors = {f"model.{name}": x for name, x in fitting.model.state_dict().items()}
                mark.write({"history": fitting.history}, tensors)
    for mark in marks:
        if mark is not None:
            mark.remove()
            if not any(mark.folder.iterdir()):
                mark.folder.rmdir()
    return len(fittings)


def _taken_back(fitting: Fitting, mark: Checkpoint) -> bool:
    """Whether an earlier run finished this member: then it is as it was."""
    found = mark.read()
    if found is None:
        return False
    state, tensors = found
    own: dict[str, Tensor] = {name.removeprefix("model."): x for name, x in tensors.items()}
    fitting.model.load_state_dict(own)
    fitting.model.eval()
    fitting.history[:] = state["history"]
    return True


def checkpoint(
    estimator: "GroupEstimator", folder: str | Path | None, resume: bool, plan: Plan, options: Training
) -> Checkpoint | None:
    """Data, columns and options must be the same to go on; how often it is written need not."""
    if folder is None:
        if resume:
            raise DataError("resume=True needs checkpoint=..., the folder that the interrupted fit wrote to.")
        return None
    given = estimator.get_params(deep=False) | {"training": replace(options, checkpoint_seconds=0.0)}
    about: dict[str, Any] = {"columns": plan.schema.roles.to_json(), "options": saving.plain(given)}
    data = {"data": fingerprint(plan.train, plan.held)}
    return Checkpoint(Path(folder), {**data, **about}, options.checkpoint_seconds)


def _own(kept: Checkpoint | None, member: int) -> Checkpoint | None:
    return None if kept is None else replace(kept, folder=kept.folder / f"member-{member}")


def _mark(kept: Checkpoint | None) -> Checkpoint | None:
    return None if kept is None else replace(kept, name=FINISHED)
