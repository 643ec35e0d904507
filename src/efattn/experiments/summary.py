"""What the runs say together: a record per experiment, setting, model, preset and protocol, and who is ahead of whom.

best peer           the one with the lowest loss on validation rows, fitted to training rows alone, of those that are
                    told no more than EFA is; where a peer has no such loss, the one with the lowest on test rows
paired difference   d_g = mean over seeds of (loss of EFA - loss of the peer) in test group g, rows as weights
                    mean and standard error over groups; a group that several splits test counts once, and so do
                    groups of one block, as days of one week
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from efattn import storage
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.settings import TRAIN, Entry, Protocol, Setting

SURE = 2.0  # standard errors, from which on a difference is one


class Chosen(NamedTuple):
    """A peer, and the rows that it was chosen on."""

    entry: Entry
    by: str


def summarised(records: Sequence[Record]) -> list[Record]:
    """In the order of the presets; what has not run is left out."""
    by_run: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        by_run.setdefault(name_of(record), []).append(record)
    lines = []
    for setting in SETTINGS:
        for entry in setting.entries:
            for protocol in entry.protocols:
                runs = runs_of(by_run, setting, entry, protocol)
                if runs:
                    lines.append(of_runs(setting, entry, runs))
                    peer = best_peer(setting, by_run, protocol, entry.sees)
                    if peer is not None and entry.preset != "peer" and entry.model.startswith("EFA"):
                        theirs = runs_of(by_run, setting, peer.entry, protocol)
                        found = paired(setting, runs, theirs)
                        told = {"model": peer.entry.model, "by": peer.by, "standing": standing(found)}
                        lines[-1]["against"] = told | found
    return lines


def name_of(record: Record) -> tuple[str, ...]:
    named = (record[name] for name in ("experiment", "setting", "model", "preset"))
    return (*named, record.get("protocol", TRAIN))


def runs_of(
    by_run: dict[tuple[str, ...], list[Record]], setting: Setting, entry: Entry, protocol: Protocol = TRAIN
) -> list[Record]:
    """The runs of one model under one preset, by seed."""
    mine = by_run.get((setting.experiment, setting.name, entry.model, entry.preset, protocol), [])
    return sorted(mine, key=lambda r: r["seed"])


def best_peer(
    setting: Setting,
    by_run: dict[tuple[str, ...], list[Record]],
    protocol: Protocol = TRAIN,
    sees: Iterable[str] = (),
) -> Chosen | None:
    """Of those that have run under the protocol, by the seeds that all of them have where rows move with the seed."""
    several = {
        entry: runs
        for entry in setting.entries
        if entry.competes and set(entry.sees) <= set(sees) and (runs := runs_of(by_run, setting, entry, protocol))
    }
    first = {entry: [run for run in runs_of(by_run, setting, entry) if "held_out" in run] for entry in several}
    test = {entry: float(np.mean([run["value"] for run in _paired(several, entry, setting)])) for entry in several}
    held = {
        entry: float(np.mean([run["held_out"]["value"] for run in _paired(first, entry, setting)]))
        for entry, runs in first.items()
        if runs
    }
    if not test:
        return None
    by, losses = ("validation", held) if len(held) == len(test) else ("test", test)
    return Chosen(min(losses, key=lambda entry: losses[entry]), by)


def _paired(several: dict[Entry, list[Record]], entry: Entry, setting: Setting) -> list[Record]:
    """Of one model, the runs of seeds that all have; all of its runs where rows stay the same, or no seed is shared."""
    seeds = set.intersection(*({run["seed"] for run in runs} for runs in several.values()))
    return [run for run in several[entry] if run["seed"] in seeds or not setting.moving or not seeds]


def standing(gap: Record) -> str | None:
    """Of EFA beside a peer: ahead, level or behind."""
    if gap["difference"] is None:
        return None
    if not abs(gap["difference"]) > SURE * gap["error"]:
        return "level"
    return "ahead" if gap["difference"] < 0 else "behind"


def of_runs(setting: Setting, entry: Entry, runs: list[Record]) -> Record:
    values = [run["value"] for run in runs]
    return {
        "experiment": setting.experiment,
        "setting": setting.name,
        "model": entry.model,
        "preset": entry.preset,
        "protocol": runs[0].get("protocol", TRAIN),
        "metric": setting.metric.name,
        "paper": entry.paper,
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None,
        "seeds": len(values),
        "seconds": float(np.mean([run["seconds"] for run in runs])),
        "log_likelihood": float(np.mean([run["log_likelihood"] for run in runs])),
        **_parts(runs),
    }


def _parts(runs: Sequence[Record]) -> Record:
    """Of the runs that have it: the loss on validation rows, that of the networks alone, shares, cover of intervals."""
    found: Record = {}
    for name in ("held_out", "alone"):
        mine = [run[name]["value"] for run in runs if name in run]
        found |= {name: float(np.mean(mine))} if mine else {}
    mixed = [run["shares"] for run in runs if "shares" in run]
    names = dict.fromkeys(name for one in mixed for name in one)
    found |= (
        {"shares": {name: float(np.mean([one.get(name, 0.0) for one in mixed])) for name in names}} if mixed else {}
    )
    covered = [run["coverage"] for run in runs if "coverage" in run]
    if covered:
        found["coverage"] = {level: _means([one[level] for one in covered]) for level in covered[0]}
    return found


def _means(covers: Sequence[Record]) -> Record:
    shared = [name for name in covers[0] if all(name in one for one in covers)]
    return {name: np.mean([one[name] for one in covers], 0).tolist() for name in shared}


def paired(setting: Setting, runs: Sequence[Record], peers: Sequence[Record], key: str = "value") -> dict[str, Any]:
    """Mean difference per row to a peer on the same rows, and its standard error over groups. Negative: better."""
    pairs = _pairs(setting, runs, peers)
    if not pairs:
        return {"difference": None, "error": None, "groups": 0}
    names = np.array([str(setting.block(name)) for run, _ in pairs for name in run["groups"]["names"]])
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
