"""What categories of products bring: Amazon Beauty, leave-last-out, ids alone and with categories as item features.

    python -m efattn.experiments.categories [OPTION=VALUE ...] [--device cuda] [--seed 0] [--users 2000] [-o FOLDER]
    python -m efattn.experiments.categories --page docs/recommending.md      the table of its files, written there

Twice: with all items in training, and with a tenth of them removed from it, rows and all. Test rows of items that
training has (warm) and of those it lacks (cold) are told apart; all are ranked among the whole catalogue, and those of
removed items among these alone as well (new): the list of what is new. To ids alone a removed item is unknown, and
missed. One JSON file a run: KIND-REMOVED-SEED.json; finished ones are skipped.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from efattn import datasets
from efattn.data.new_items import some_items
from efattn.estimators import EFA, saving
from efattn.experiments import records, trial
from efattn.experiments.presets import recommending
from efattn.experiments.records import Record
from efattn.experiments.settings import Split

KINDS = ("ids", "categories")
REMOVED = (0.0, 0.1)
LENGTHS = (10, 20, 100)
SHOWN = ("recall", "ndcg", "mrr", "mass")
MARKS = "<!-- categories -->", "<!-- /categories -->"
COLUMNS = {"NDCG@10": ("ndcg@10", 4), "recall@10": ("recall@10", 3), "recall@100": ("recall@100", 3)}
TESTED = {
    "warm": "tested on these",
    "cold": "tested on the others, among all",
    "new": "tested on the others, among these",
}


def features() -> pl.DataFrame:
    """A row a product, its categories in a list."""
    return datasets.amazon_beauty_categories().group_by("item", maintain_order=True).agg("category")


def cold_items(share: float, seed: int) -> pl.Series:
    """Of all products, those that training is not to see."""
    items = datasets.amazon_beauty_categories()["item"].unique().sort()
    return items.filter(some_items(len(items), share, seed=seed)) if share else items.head(0)


def without(rows: Split, cold: pl.Series) -> Split:
    """No rows of these items to train on or to choose by; tests stay."""
    kept = ~pl.col("item").is_in(cold.implode())
    return Split(rows.train.filter(kept), rows.validation.filter(kept), rows.test)


def measured(model: EFA, test: pl.DataFrame, cold: pl.Series) -> Record:
    """Lists for targets of known items, and of the others."""
    strange = pl.col("item").is_in(cold.implode())
    told: Record = {}
    for name, which in (("warm", ~strange), ("cold", strange)):
        part = test.with_columns(target=pl.col("target") & which)
        if not part["target"].any():
            continue
        found = model.evaluate(part, k=LENGTHS)
        told[name] = {"rows": found.about["predicted"], "items": found.about["items"]}
        for line in found.lines:
            if line.metric in SHOWN and line.part == "all":
                told[name][line.metric if line.k is None else f"{line.metric}@{line.k:g}"] = [line.mean, line.error]
    if len(cold) and model.schema_.features is not None:
        told["new"] = _among_new(model, test, cold)
    return told


def _among_new(model: EFA, test: pl.DataFrame, cold: pl.Series) -> Record:
    """Where the removed item that came stands among the removed ones."""
    mine = test.filter((pl.col("target") & pl.col("item").is_in(cold.implode())).any().over("user"))
    history, came = mine.filter(~pl.col("target")), mine.filter("target").select("user", came="item")
    lists = model.recommend(history.drop("target"), k=max(LENGTHS), among=cold.to_list())
    rank = came.join(lists, on="user").filter(pl.col("item") == pl.col("came"))["rank"].to_numpy()
    told: Record = {"rows": len(came), "items": len(cold)}
    for k in LENGTHS:
        gain = np.zeros(len(came))
        gain[: len(rank)] = np.where(rank <= k, 1 / np.log2(1 + rank), 0.0)
        for name, x in (("recall", gain > 0), ("ndcg", gain)):
            told[f"{name}@{k}"] = [float(x.mean()), float(x.std() / max(len(x), 1) ** 0.5)]
    return told


def run(kind: str, share: float, rows: Split, options: dict[str, Any], seed: int) -> Record:
    cold = cold_items(share, seed)
    parts, start = without(rows, cold), time.perf_counter()
    known: dict[str, Any] = {"item_features": features()} if kind == "categories" else {}
    model = EFA(**recommending.QUESTION, **options)
    model.fit(parts.train, **recommending.BEAUTY, **known, validation=parts.validation, progress=False)
    record: Record = {"kind": kind, "removed": share, "seed": seed, "seconds": round(time.perf_counter() - start, 2)}
    record |= {"epochs": len(model.history_), "commit": records.commit(), "threads": torch.get_num_threads()}
    record["device"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    record["parameters"] = saving.plain(model.get_params(deep=False))
    record["shares"] = {one.recipe.label: one.share for one in model.companions_.get("item", ())}
    return record | measured(model, parts.test, cold)


def markdown(folder: Path) -> str:
    """A line for each kind of test row of each finished run; of ids alone those that it knows."""
    lines = [f"| | products in training | {' | '.join(COLUMNS)} |", f"|---|---|{'---:|' * len(COLUMNS)}"]
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    order = sorted(runs, key=lambda run: (run["removed"], KINDS.index(run["kind"]), run["seed"]))
    for which, run in ((which, run) for which in TESTED for run in order):
        if which not in run or (run["kind"] == "ids" and which != "warm"):
            continue
        told = [" ± ".join(f"{x:.{digits}f}" for x in run[which][name]) for name, digits in COLUMNS.values()]
        kind = "by ids" if run["kind"] == "ids" else "with categories"
        known = f"{1 - run['removed']:.0%}, {TESTED[which]}" if run["removed"] else "all"
        lines.append(f"| {' | '.join([kind, known, *told])} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m efattn.experiments.categories", description=__doc__)
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--users", type=int, help="fewer, to try quickly")
    parser.add_argument("--kind", choices=KINDS, action="append", help="all unless said")
    parser.add_argument("--removed", type=float, action="append", help="0 and 0.1 unless said")
    parser.add_argument("-o", "--output", type=Path, default=Path("results/categories"))
    parser.add_argument("--page", type=Path, help="write the table of finished runs between its marks; nothing is run")
    asked = parser.parse_args(words)
    if asked.page is not None:
        before, rest = asked.page.read_text().split(MARKS[0])
        told = f"{MARKS[0]}\n{markdown(asked.output)}\n{MARKS[1]}"
        asked.page.write_text(before + told + rest.split(MARKS[1])[1])
        return
    rows = trial.some(recommending.beauty(asked.seed), "user", asked.users, asked.seed)
    options = trial.options_of(asked.options, asked.device, asked.seed)
    for share in asked.removed or REMOVED:
        for kind in asked.kind or KINDS:
            path = asked.output / f"{kind}-{share:g}-{asked.seed}.json"
            if not path.exists():
                record = run(kind, share, rows, options, asked.seed)
                records.write(path, {"users": asked.users, **record})
                short = {part: record[part].get("ndcg@10") for part in ("warm", "cold") if part in record}
                sys.stdout.write(f"{path}: {record['seconds']} s, NDCG@10 {short}\n")


if __name__ == "__main__":
    main()
