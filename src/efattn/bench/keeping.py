"""What was measured, as one JSON file a bench: records, and what there is to know about how they were made."""

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from efattn import __version__, storage


def keep(folder: Path, name: str, records: Sequence[Mapping[str, Any]], **about: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = {"version": __version__, "python": platform.python_version()} | about
    with storage.beside(folder / f"{name}.json") as part:
        part.write_text(json.dumps({"about": known, "records": records}, indent=1) + "\n")
