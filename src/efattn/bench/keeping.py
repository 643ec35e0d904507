"""What was measured, as one JSON file a bench: records, and what there is to know about how they were made."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from efattn import __version__, storage


def keep(folder: Path, name: str, records: Sequence[Mapping[str, Any]], **about: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    known = {"bench": name, "version": __version__, "python": platform.python_version()}
    known |= {"machine": machine(), "commit": commit(), "load": load()} | about
    with storage.beside(folder / f"{name}.json") as part:
        part.write_text(json.dumps({"about": known, "records": records}, indent=1) + "\n")


@cache
def machine() -> dict[str, Any]:
    """What the seconds of a run depend on."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": _memory(),
        "gpu": gpu,
        "torch": torch.__version__,
    }


def load() -> float | None:
    """Of the last minute, the bench in it: how busy the machine was; None where the system does not say."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


@cache
def commit() -> str | None:
    """Of the sources that ran, with a plus if they were changed since; None outside of a repository."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=20, check=True)
        return done.stdout.strip()

    try:
        return git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "--", "..") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor())


def _memory() -> int | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
    except (AttributeError, ValueError, OSError):  # Windows
        return None
