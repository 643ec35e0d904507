"""The theorems, run: one JSON file per part in results/theory, finished parts are skipped.

identifiability   two fits that differ in their seeds only, up to a linear map, against random controls   (Theorem 1)
diversity         ranks and condition numbers of the diversity matrices on held-out rows
bound             the bound's term and the norm of a model fitted to stations' temperatures               (Theorem 2)
excess            held-out excess loss against the number of groups, and its log-log slope
propositions      latent factor models against their attention forms: maximal differences      (Propositions 1 to 3)
"""

import json
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from efattn import __version__, datasets, storage, theory
from efattn.estimators import EFA
from efattn.experiments.presets import synthetic

Columns = Mapping[str, list[Any]]
SEEDS = (0, 1)
GROUPS = (64, 256, 1024, 4096)


@cache
def _fits() -> tuple[EFA, ...]:
    """Synthetic ratings and their order: items and values, two seeds, the same rows."""
    parts = synthetic.split(0)
    roles: dict[str, Any] = {**synthetic.ROLES, "validation": parts.validation}
    made = (EFA(family="gaussian", context="past", companions=None, seed=seed) for seed in SEEDS)
    return tuple(model.fit(parts.train, **roles, progress=False) for model in made)


@cache
def _sequences() -> tuple[tuple[EFA, ...], pl.DataFrame]:
    from efattn.experiments.presets import sequences

    parts = sequences.split(0)
    made = (EFA(context="past", terms="item", seed=seed) for seed in SEEDS)
    fitted = (m.fit(parts.train, **sequences.ROLES, validation=parts.validation, progress=False) for m in made)
    return tuple(fitted), parts.test


def identifiability() -> tuple[Columns, dict[str, Any]]:
    a, b = _fits()
    found = theory.compare(a, b, synthetic.split(0).test).columns()
    (c, d), test = _sequences()
    more = theory.compare(c, d, test).columns()
    data = ["synthetic"] * len(found["term"]) + ["sequences"] * len(more["term"])
    return {"data": data, **{name: [*x, *more[name]] for name, x in found.items()}}, {}


def diversity() -> tuple[Columns, dict[str, Any]]:
    found = theory.check_diversity(_fits()[0], synthetic.split(0).test).columns()
    fitted, test = _sequences()
    more = theory.check_diversity(fitted[0], test).columns()
    data = ["synthetic"] * len(found["term"]) + ["sequences"] * len(more["term"])
    return {"data": data, **{name: [*x, *more[name]] for name, x in found.items()}}, {}


def bound() -> tuple[Columns, dict[str, Any]]:
    frame = datasets.noaa_october()
    roles: dict[str, Any] = {"group": "date", "attributes": ["latitude", "longitude"], "value": "tmean"}
    model = EFA(family="gaussian", terms="value", companions=None).fit(frame, **roles, progress=False)
    return theory.bound(model, frame).columns(), {}


def excess() -> tuple[Columns, dict[str, Any]]:
    found = theory.excess_experiment(GROUPS, (0, 1, 2))
    more = {"slope": found.slope, "floor": found.floor, "without_context": found.without_context}
    return found.columns(), more


def propositions() -> tuple[Columns, dict[str, Any]]:
    found = theory.check_propositions()
    return found.columns(), {"difference": found.difference}


PARTS: tuple[Callable[[], tuple[Columns, dict[str, Any]]], ...] = (
    propositions,
    excess,
    bound,
    identifiability,
    diversity,
)


def run_all(folder: Path, told: Callable[[str, dict[str, Any]], object] | None = None) -> None:
    for part in PARTS:
        path = folder / "theory" / f"{part.__name__}.json"
        if path.exists():
            continue
        start = time.perf_counter()
        columns, more = part()
        record: dict[str, Any] = {"part": part.__name__, "seeds": list(SEEDS), "version": __version__}
        record |= {"seconds": round(time.perf_counter() - start, 2), **more}
        record["columns"] = {name: [_plain(x) for x in column] for name, column in columns.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with storage.beside(path) as beside:
            beside.write_text(json.dumps(record, indent=1) + "\n")
        if told is not None:
            told(part.__name__, record)


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """The parts that have run, by name."""
    paths = ((part.__name__, folder / "theory" / f"{part.__name__}.json") for part in PARTS)
    return {name: json.loads(path.read_text()) for name, path in paths if path.exists()}


def _plain(x: Any) -> Any:
    return x.item() if isinstance(x, np.generic) else x
