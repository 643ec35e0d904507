"""Where training stands, in a file that is there whole or not at all.

It holds the weights of every term, the best ones so far, the optimiser's moments, the random state, the place in the
data order, the history and the fingerprint of the table: all that the next step depends on. Resuming gives the
weights that an uninterrupted run would have given, bit for bit, on the same build, CPU and thread count. A fit that is
finished leaves its weights and history in the same place, until somebody has saved the model.
"""

import contextlib
import hashlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, final

from torch import Tensor

from efattn import storage
from efattn.data import Groups
from efattn.errors import DataError, EfattnError, ModelFileError, option
from efattn.training.lock import locked

log = logging.getLogger("efattn")
NAME = "training.checkpoint"
SHOWN = 3  # differences that are told
WHAT = {"version": "another version of efattn", "columns": "other columns", "options": "other options"}

PLACES = ("", "member-*/", "refit/", "refit/member-*/")  # where checkpoints lie in a folder


@final
@dataclass
class Progress:
    """Where the training of one term stands."""

    epoch: int = 0
    batch: int = 0  # of the epoch
    total: float = 0.0  # of the epoch so far
    weight: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    drops: int = 0  # of the rate, on a plateau
    since: int = 0  # the epoch of the last one
    averaged: int = 0  # steps in the running mean of the weights
    spent: float = 0.0  # seconds of the epochs before
    rate: float = 0.0  # of the last step

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@final
@dataclass
class Checkpoint:
    """A folder to write to every `seconds`. `about`: the fingerprint of data and options, which must be the same."""

    folder: Path
    about: dict[str, Any]
    seconds: float
    last: float = field(default_factory=time.monotonic)

    @property
    def path(self) -> Path:
        return self.folder / NAME

    def of_member(self, number: int) -> "Checkpoint":
        return replace(self, folder=self.folder / f"member-{number}")

    def of_refit(self) -> "Checkpoint":
        """Of the second fit, to all groups."""
        return replace(self, folder=self.folder / "refit")

    @contextlib.contextmanager
    def claimed(self, resume: bool) -> Iterator[None]:
        """Alone with the folder, in which something can be written and, with `resume`, there is something of ours to
        go on from, or else nothing that would be lost: a DataError now, before anything is computed."""
        if resume and not left_in(self.folder):
            raise DataError(
                f"There is nothing to resume in {option('checkpoint', str(self.folder))}: no fit has kept anything "
                f"there. Leave {option('resume', True)} out to start one, or check the folder.",
                option="resume",
            )
        self.prepare()
        with contextlib.ExitStack() as stack:
            with self._told():
                stack.enter_context(locked(self.folder))
                storage.try_path(self.path)
            self._sweep()
            for path in left_in(self.folder):
                self._check(path, resume)
            yield

    def prepare(self) -> None:
        """A folder to write to."""
        with self._told():
            self.folder.mkdir(parents=True, exist_ok=True)

    def due(self) -> bool:
        return time.monotonic() - self.last >= self.seconds

    def write(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """A disk that is full by now does not end the training: what was written before stays."""
        try:
            storage.write(self.path, "checkpoint", {"about": self.about, "state": dict(state)}, tensors)
        except ModelFileError as error:
            log.warning("%s Training goes on, without a newer checkpoint.", error)
        self.last = time.monotonic()

    def finish(self, history: list[Any], weights: Mapping[str, Tensor]) -> None:
        """Leave what was fitted, until the model is saved."""
        self.write({"finished": True, "history": history}, {f"model.{name}": x for name, x in weights.items()})

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """State and tensors, or None where nothing was written yet."""
        if not self.path.exists():
            return None
        record, tensors = storage.read(self.path, "checkpoint")
        with self.usable():
            self._check_same(self.path, record["about"])
            return dict(record["state"]), tensors

    def clear(self) -> None:
        """Away with what a finished fit of ours left, now that its model is saved; what others left stays."""
        forget(self.folder, self.about)

    @contextlib.contextmanager
    def usable(self) -> Iterator[None]:
        """A ModelFileError for a checkpoint that is whole, and yet none."""
        try:
            yield
        except EfattnError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise ModelFileError(f"{str(self.path)!r} is no usable checkpoint. Delete it, and start anew.") from error

    def _check(self, path: Path, resume: bool) -> None:
        if resume:
            with replace(self, folder=path.parent).usable():
                self._check_same(path, storage.about(path, "checkpoint")["about"])
            return
        kind, other = "an unfinished fit", "go on with it"
        with contextlib.suppress(ModelFileError):
            if _finished(storage.about(path, "checkpoint")):
                kind, other = "a finished fit that was not saved", "take it as it is"
        go_on = f"Pass {option('resume', True)} to {other}"
        raise DataError(
            f"{option('checkpoint', str(self.folder))} holds {kind}, which would be lost. {go_on}, choose another "
            "folder, or delete this one.",
            option="checkpoint",
        )

    def _check_same(self, path: Path, theirs: Mapping[str, Any]) -> None:
        for name, mine in self.about.items():
            if theirs.get(name) != mine:
                what = WHAT.get(name, f"other {name}") + _differences(theirs.get(name), mine)
                raise DataError(
                    f"The checkpoint {str(path)!r} belongs to {what}. Resume with what it was started with, or choose "
                    "another folder.",
                    option="resume",
                )

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ModelFileError) as error:
            reason = f"{error.strerror}. Choose another." if isinstance(error, OSError) else str(error)
            raise DataError(
                f"{option('checkpoint', str(self.folder))} cannot be a folder to write to: {reason}",
                option="checkpoint",
            ) from error

    def _sweep(self) -> None:
        """Away with what a process left that was killed while it wrote: nobody else is here."""
        inner = [path for place in PLACES[1:] for path in self.folder.glob(place)]
        for path in (self.folder, *inner):
            for left in storage.parts(path / NAME):
                left.unlink(missing_ok=True)


def left_in(folder: str | Path) -> list[Path]:
    """The checkpoints that lie in a folder, of a fit, of the members of an ensemble and of their second fits: what can
    be resumed."""
    return [path for place in PLACES for path in sorted(Path(folder).glob(f"{place}{NAME}"))]


def forget(folder: str | Path, about: Mapping[str, Any] | None = None) -> None:
    """Away with what a finished fit left in a folder: any, or the one of these data and options. What is not finished
    stays, and so does everything where another fit is at work."""
    folder = Path(folder)
    if not left_in(folder):
        return
    with contextlib.suppress(EfattnError, OSError), locked(folder):
        files = left_in(folder)
        told = [storage.about(path, "checkpoint") for path in files]
        if all(_finished(x) and about in (None, x["about"]) for x in told):
            for path in files:
                path.unlink()
            for inner in sorted({path.parent for path in files} - {folder}, key=lambda x: -len(x.parts)):
                with contextlib.suppress(OSError):  # where something else lies
                    inner.rmdir()
            with contextlib.suppress(OSError):
                (folder / "refit").rmdir()


def _finished(about: Mapping[str, Any]) -> bool:
    return isinstance(about.get("state"), dict) and about["state"].get("finished") is True


def _differences(theirs: Any, mine: Any) -> str:
    """: width=32 there, width=64 here"""
    if not isinstance(theirs, dict) or not isinstance(mine, dict):
        return ""
    pairs = [(name, theirs.get(name), mine.get(name)) for name in {**mine, **theirs}]
    words = [_difference(name, was, now) for name, was, now in pairs if was != now]
    return ": " + "; ".join(words[:SHOWN]) + ("; and more" if len(words) > SHOWN else "")


def _difference(name: str, was: Any, now: Any) -> str:
    if isinstance(was, dict) and isinstance(now, dict) and was.get("is") == now.get("is") == "training":
        return _differences(was["value"], now["value"]).removeprefix(": ")
    return f"{option(name, _plain(was))} there, {option(name, _plain(now))} here"


def _plain(x: Any) -> Any:
    """As it is written in a call."""
    if isinstance(x, dict) and "is" in x:
        return x.get("value")
    return x[0] if isinstance(x, list) and len(x) == 1 else x


def fingerprint(*parts: Groups | None) -> str:
    """Of everything that is known about the groups."""
    each = ("none" if groups is None else groups.fingerprint() for groups in parts)
    return hashlib.sha256(" ".join(each).encode()).hexdigest()
