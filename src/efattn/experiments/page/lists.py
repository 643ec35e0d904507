"""Recommenders: lists over the whole catalogue, by the same call for all, and how far their probabilities hold."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from efattn.experiments.page.blocks import TIED, Block, Cell, Heading, Text, table
from efattn.experiments.page.numbers import NONE, number, seconds
from efattn.experiments.page.results import Results, settings
from efattn.experiments.presets.recommending import PUBLISHED
from efattn.experiments.records import Record
from efattn.experiments.settings import Entry, Setting

HEAD = (
    "model", "preset", "NDCG@10", "recall@10", "MRR", "mass of the top ten", "hits less mass", "coverage@10",
    "validation NDCG@10", "seeds", "seconds",
)  # fmt: skip
ABOUT = (
    "Means over users ± their standard errors, averaged over seeds. Hits less mass is the share of users whose item is "
    "among the first ten, less the probability that the model gives to these ten together: zero, within two standard "
    "errors, where probabilities can be trusted. Coverage is the share of the catalogue that is on any list. Published "
    "numbers are of the same split and the same full ranking, as their authors print them."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("Lists of ten", 3)
    yield Text(ABOUT)
    for setting in settings("recommending"):
        yield Heading(setting.name, 4)
        ran = [(entry, runs) for entry in setting.entries if (runs := results.with_key(setting, entry, "lists"))]
        ran.sort(key=lambda one: -_mean(one[1], "ndcg@10", 0))
        rows = [*(_row(entry, runs) for entry, runs in ran), *_published(setting)]
        if rows:
            yield table(HEAD, rows, words=2)
        if not ran:
            yield Text("No lists yet.")


def _row(entry: Entry, runs: Sequence[Record]) -> list[str | Cell]:
    held = [run["held_out"]["lists"]["ndcg@10"][0] for run in runs if "lists" in run.get("held_out", {})]
    return [
        entry.model,
        entry.preset,
        *(_with_error(runs, name) for name in ("ndcg@10", "recall@10", "mrr")),
        number(_mean(runs, "mass@10", 0), 4),
        _with_error(runs, "excess@10", sign=True),
        number(_mean(runs, "coverage@10", 0), 3),
        number(float(np.mean(held)), 4) if held else NONE,
        str(len(runs)),
        _took(runs),
    ]


def _published(setting: Setting) -> Iterator[list[str | Cell]]:
    for model, (ndcg, recall) in PUBLISHED.get(setting.name, {}).items():
        yield [model, "published", number(ndcg, 4), number(recall, 4), *[NONE] * 7]


def _mean(runs: Sequence[Record], name: str, which: int) -> float:
    return float(np.mean([run["lists"][name][which] for run in runs if len(run["lists"][name]) > which] or [np.nan]))


def _with_error(runs: Sequence[Record], name: str, sign: bool = False) -> str:
    return f"{number(_mean(runs, name, 0), 4, sign)}{TIED}±{TIED}{number(_mean(runs, name, 1), 4)}"


def _took(runs: Sequence[Record]) -> str:
    """By machine."""
    by_device: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        by_device[run["device"]].append(run["seconds"])
    return "; ".join(f"{seconds(float(np.mean(took)))} ({device})" for device, took in sorted(by_device.items()))
