"""How far a fit is: a bar on a terminal or in a notebook, a line per stage elsewhere. And lines of a history file."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, final

from efattn.errors import DataError, named, option
from efattn.training import Record, teams

log = logging.getLogger("efattn")


@final
class Stages:
    """wanted: True for a bar, False for silence, None for what suits where it is shown."""

    def __init__(self, wanted: bool | None) -> None:
        if wanted is not None and not isinstance(wanted, bool):
            raise DataError(f"progress is True, False or None; found {wanted!r}.", option="progress")
        wanted = wanted if teams.first() else False
        self.with_bar = (sys.stderr.isatty() or _in_notebook()) if wanted is None else wanted
        self.with_lines = wanted is None and not self.with_bar
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "Stages":
        if self.with_bar:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}")
            parts = (text, BarColumn(bar_width=24), TimeRemainingColumn(), TextColumn("{task.fields[fit]}"))
            console = Console() if _in_notebook() else Console(stderr=True)
            self.bar = Progress(*parts, console=console)
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def say(self, words: str) -> None:
        """One line, where there is no bar."""
        if self.with_lines:
            sys.stderr.write(f"efattn: {words}\n")

    def tick(self, what: str, step: int, steps: int, member: int | None = None, fold: int | None = None) -> None:
        if self.bar is None:
            return
        name = _name(what, member, fold)
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, fit="")
        self.bar.update(self.tasks[name], completed=step, total=steps)

    def epoch(self, record: Record) -> None:
        name = _name(record["term"], record.get("member"), record.get("fold"))
        if self.bar is None or name not in self.tasks:
            return
        held, best = record["validation"], record["best"]
        fit = f"epoch {record['epoch']}/{record['epochs']}  train {record['train']:.4f}"
        fit += "" if held is None else f"  validation {held:.4f}  best {best:.4f}"
        self.bar.update(self.tasks[name], fit=fit)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    active = None if shell is None else shell.get_ipython()
    return active is not None and hasattr(active, "kernel")


def _name(what: str, member: int | None, fold: int | None = None) -> str:
    """Members of folds follow each other, so that one bar a fold shows all of them."""
    if fold is not None:
        return f"{what}, fold {fold + 1}"
    return what if member is None else f"{what}, member {member}"


def listed(callbacks: Any) -> list[Callable[[Record], object]]:
    """One or several."""
    several = [callbacks] if callable(callbacks) else callbacks
    if not isinstance(several, Sequence) or not all(callable(one) for one in several):
        raise DataError(
            f"{named('callbacks')} is a function of each epoch's record, or several; found {callbacks!r}.",
            option="callbacks",
        )
    return list(several)


def line_writer(path: str | Path) -> Callable[[Record], None]:
    """A callback that appends each record to a file as a line of JSON."""
    try:
        open(path, "a").close()
    except OSError as error:
        raise DataError(
            f"{option('history', str(path))} cannot be written to: {error.strerror}. Choose another file.",
            option="history",
        ) from error

    broken = False

    def write(record: Record) -> None:
        nonlocal broken
        try:
            if not broken:
                with open(path, "a") as file:
                    file.write(json.dumps(record) + "\n")
        except OSError as error:  # a full disk is no reason to lose what was trained
            broken = True
            log.warning("%r cannot be written to: %s. Training goes on without it.", str(path), error.strerror)

    return write
