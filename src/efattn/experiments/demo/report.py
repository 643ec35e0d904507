"""What a demo prints and the folder it writes to."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from rich.console import Console
from rich.table import Table

from efattn import plots, storage
from efattn.errors import DataError

if TYPE_CHECKING:
    import polars as pl


# every option that matters, so that a demo stays what it is when defaults change
TRAINING: dict[str, Any] = {"rate": 0.01, "warmup": 0.05, "decay": "cosine", "optimiser": "adamw", "weight_decay": 0.01}
TRAINING |= {"clip": 1.0, "patience": None, "device": "cpu"}


@final
class Report:
    """files: the names of what was written, in order."""

    def __init__(self, folder: str | Path, console: Console | None = None) -> None:
        self.folder, self.files = Path(folder), list[str]()
        self.console = console or Console(highlight=False)
        self.steps: list[tuple[str, str]] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            wrong = "is a file" if self.folder.is_file() else f"cannot be made: {error.strerror or error}"
            raise DataError(f"The folder {str(folder)!r} {wrong}. Name another one for the demo.") from error

    def say(self, text: str = "", style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int] = ()) -> None:
        """best: the rows to print bold."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        numbers = [
            all(row[c].replace(".", "", 1).strip().isdigit() for row in rows if row[c]) for c in range(len(columns))
        ]
        for name, number in zip(columns, numbers, strict=True):
            table.add_column(name, justify="right" if number else "left")
        for k, row in enumerate(rows):
            table.add_row(*row, style="bold" if k in best else None)
        self.console.print(table)

    def fitted(self, model: Any, table: Any, what: str, **fit: Any) -> Any:
        """Fit with a bar on a terminal; an interruption ends the demo."""
        self.say(f"Fitting {what} ...", "dim")
        model.fit(table, **fit)
        if model.interrupted_:
            raise KeyboardInterrupt
        return model

    def path(self, name: str) -> Path:
        self.files.append(name)
        return self.folder / name

    def picture(self, drawn: Any, name: str) -> None:
        plots.save(drawn, self.path(name))

    def rows(self, frame: "pl.DataFrame", name: str) -> None:
        path = self.path(name)
        try:
            with storage.beside(path) as part:
                frame.write_csv(part)
        except OSError as error:
            raise DataError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error

    def shell(self, name: str) -> str:
        """A file of the folder, or one to be, as it is typed."""
        return shlex.quote(str(self.folder / name))

    def next(self, why: str, *commands: str) -> None:
        self.steps += [(why if k == 0 else "", command) for k, command in enumerate(commands)]

    def written(self, about: dict[str, str]) -> None:
        """What each file shows."""
        self.say(f"\nIn {self.folder}/:", "bold")
        wide = max(map(len, about))
        for name, text in about.items():
            self.console.print(f"  {name:{wide}}  {text}", markup=False, soft_wrap=True)

    def close(self, seconds: float) -> None:
        self.say("\nTo try next:", "bold")
        for why, command in self.steps:
            if why:
                self.say(f"  {why}:")
            self.console.print(f"    {command}", style="cyan", markup=False, soft_wrap=True)
        self.say(f"\n{seconds:.0f} seconds.", "dim")
