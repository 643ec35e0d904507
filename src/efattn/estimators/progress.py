"""A progress bar: term, epoch, losses, best, time left. On a terminal, or where it is asked for. And the lines of a
history file."""

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, final

from efattn.errors import DataError, option
from efattn.training import Record

log = logging.getLogger("efattn")


@final
class Bar:
    """Shown from the first step on; silent where it is off."""

    def __init__(self, wanted: bool | None) -> None:
        self.wanted = sys.stderr.isatty() if wanted is None else wanted
        self.bar: Any = None
        self.tasks: dict[str, Any] = {}

    def __enter__(self) -> "Bar":
        if self.wanted:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            text = TextColumn("{task.description}")
            parts = (text, BarColumn(bar_width=24), TimeRemainingColumn(), TextColumn("{task.fields[fit]}"))
            self.bar = Progress(*parts, console=Console(stderr=True))
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def tick(self, term: str, step: int, steps: int, member: int | None = None) -> None:
        if self.bar is None:
            return
        name = _name(term, member)
        if name not in self.tasks:
            self.tasks[name] = self.bar.add_task(name, fit="")
        self.bar.update(self.tasks[name], completed=step, total=steps)

    def epoch(self, record: Record) -> None:
        name = _name(record["term"], record.get("member"))
        if self.bar is None or name not in self.tasks:
            return
        held, best = record["validation"], record["best"]
        fit = f"epoch {record['epoch']}/{record['epochs']}  train {record['train']:.4f}"
        fit += "" if held is None else f"  validation {held:.4f}  best {best:.4f}"
        self.bar.update(self.tasks[name], fit=fit)


def _name(term: str, member: int | None) -> str:
    return term if member is None else f"{term}, member {member}"


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
