"""Two demonstrations that need nothing but the package: `synthetic`, the paper's study of order, and `weather`.

    run("weather", Path("efattn-demo"))

Each fits EFA beside latent factors, prints a table, and leaves a model, a table to predict and pictures in a folder. Of
what is in the folder already, only files of the same names are replaced.
"""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from efattn.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

NAMES = ("synthetic", "weather")


def run(
    name: str = "synthetic",
    folder: str | Path = "efattn-demo",
    *,
    epochs: int | None = None,
    users: int = 10_000,
    console: "Console | None" = None,
) -> dict[str, Any]:
    """Gives what was printed, as numbers. epochs: fewer for a quick look; users: of the synthetic data; console: where
    to print, by default standard output."""
    if name not in NAMES:
        raise DataError(f"There is no demo {name!r}; there are {' and '.join(map(repr, NAMES))}.")
    from efattn.experiments.demo import synthetic, weather
    from efattn.experiments.demo.report import Report

    start = time.perf_counter()
    report = Report(folder, console)
    with _one_thread():
        numbers = synthetic.run(report, users, epochs) if name == "synthetic" else weather.run(report, epochs)
    seconds = time.perf_counter() - start
    report.close(seconds)
    return {"demo": name, "folder": str(report.folder), "files": report.files, "seed": 0, "seconds": seconds, **numbers}


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """These networks are so small that a second thread costs more than it gives, on a busy machine by far."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
