"""What the runs say together: a record per experiment, setting, model and preset, and who is ahead of whom.

paired difference   d_g = mean over seeds of (loss of EFA - loss of the peer) in test group g, rows as weights
                    mean and standard error over groups; a group that several splits test counts once
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from efattn import storage
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import Entry, Setting

FLOOR = "Bayes floor"  # what drew the data: a limit, not a peer


def summarised(records: Sequence[Record]) -> list[Record]:
    """In the order of the presets; what has not run is left out."""
    lines = []
    for setting in SETTINGS:
        mine = {entry: runs_of(records, setting, entry) for entry in setting.entries}
        peer = best_peer(setting, records)
        for entry, runs in mine.items():
            if runs:
                lines.append(of_runs(setting, entry, runs))
                if peer is not None and entry.preset not in ("peer",) and entry.model.startswith("EFA"):
                    lines[-1]["against"] = {"model": peer.model, **paired(setting, runs, mine[peer])}
    return lines


def runs_of(records: Iterable[Record], setting: Setting, entry: Entry) -> list[Record]:
    """The runs of one model under one preset, by seed."""
    name = (setting.experiment, setting.name, entry.model, entry.preset)
    mine = [r for r in records if (r["experiment"], r["setting"], r["model"], r["preset"]) == name]
    return sorted(mine, key=lambda r: r["seed"])


def best_peer(setting: Setting, records: Sequence[Record]) -> Entry | None:
    """The peer with the lowest mean loss, of those that have run."""
    means = {
        entry: float(np.mean([r["value"] for r in runs]))
        for entry in setting.entries
        if entry.preset == "peer" and entry.model != FLOOR and (runs := runs_of(records, setting, entry))
    }
    return min(means, key=lambda entry: means[entry]) if means else None


def of_runs(setting: Setting, entry: Entry, runs: list[Record]) -> Record:
    values = [run["value"] for run in runs]
    return {
        "experiment": setting.experiment,
        "setting": setting.name,
        "model": entry.model,
        "preset": entry.preset,
        "metric": setting.metric.name,
        "paper": entry.paper,
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "seeds": len(values),
        "seconds": float(np.mean([run["seconds"] for run in runs])),
        "log_likelihood": float(np.mean([run["log_likelihood"] for run in runs])),
    }


def paired(setting: Setting, runs: Sequence[Record], peers: Sequence[Record], key: str = "value") -> dict[str, Any]:
    """Mean difference per row to a peer on the same rows, and its standard error over groups. Negative: better."""
    pairs = _pairs(setting, runs, peers)
    if not pairs:
        return {"difference": None, "error": None, "groups": 0}
    names = np.concatenate([run["groups"]["names"] for run, _ in pairs])
    rows = np.concatenate([np.array(run["groups"]["rows"], float) for run, _ in pairs])
    gaps = np.concatenate([np.array(run["groups"][key]) - np.array(peer["groups"][key]) for run, peer in pairs])
    which = np.unique(names, return_inverse=True)[1]
    weight = np.bincount(which, rows)
    gap = np.bincount(which, rows * gaps) / weight
    mean = float(np.average([run[key] - peer[key] for run, peer in pairs], weights=[run["rows"] for run, _ in pairs]))
    share = weight / weight.sum()
    error = float(np.sqrt(np.sum((share * (gap - mean)) ** 2) * len(gap) / max(len(gap) - 1, 1)))
    return {"difference": mean, "error": error, "groups": len(gap)}


def _pairs(setting: Setting, runs: Sequence[Record], peers: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Runs on the same rows: of the same seed where the split moves, else the same seed or the peer's only one. Runs on
    other rows, as of an older split, are left out."""
    by_seed = {peer["seed"]: peer for peer in peers}
    if setting.moving:
        pairs = [(run, by_seed[run["seed"]]) for run in runs if run["seed"] in by_seed]
    else:
        pairs = [(run, by_seed.get(run["seed"], peers[0])) for run in runs if peers]
    return [(run, peer) for run, peer in pairs if run["groups"]["names"] == peer["groups"]["names"]]


def write(folder: Path, records: Sequence[Record]) -> list[Record]:
    """results/summary.json"""
    lines = summarised(records)
    with storage.beside(folder / "summary.json") as part:
        part.write_text(json.dumps(lines, indent=1) + "\n")
    return lines
