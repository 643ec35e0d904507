"""A progress bar: term, epoch, losses, best, time left. On a terminal, or where it is asked for."""

import sys
from types import TracebackType
from typing import Any, final

from efattn.training import Record


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

    def tick(self, term: str, step: int, steps: int) -> None:
        if self.bar is None:
            return
        if term not in self.tasks:
            self.tasks[term] = self.bar.add_task(term, fit="")
        self.bar.update(self.tasks[term], completed=step, total=steps)

    def epoch(self, record: Record) -> None:
        if self.bar is None or record["term"] not in self.tasks:
            return
        held, best = record["validation"], record["best"]
        fit = f"epoch {record['epoch']}/{record['epochs']}  train {record['train']:.4f}"
        fit += "" if held is None else f"  validation {held:.4f}  best {best:.4f}"
        self.bar.update(self.tasks[record["term"]], fit=fit)
