"""One fit with other options, judged on validation rows: to choose by, never to report.

    python -m efattn.experiments.trial SETTING [OPTION=VALUE ...] [--device cuda] [--seed 0] [--groups 2000] [-o FOLDER]
    python -m efattn.experiments.trial recommending/beauty width=64 training.rate=0.001 companions=null -o trials

Values are JSON, or words. One JSON file a trial: what `evaluate` or the setting's loss says of validation rows, of the
networks alone too, options, epochs and seconds. `--test` looks at test rows as well: once, in the end.
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

from efattn.errors import DataError
from efattn.estimators import EFA, saving
from efattn.experiments import measuring, records
from efattn.experiments.presets import SETTINGS
from efattn.experiments.records import Record
from efattn.experiments.runner import slug
from efattn.experiments.settings import Setting, Split
from efattn.training import Training


def setting_of(name: str) -> Setting:
    """As EXPERIMENT/SETTING in a unit's name."""
    for one in SETTINGS:
        if name == f"{slug(one.experiment)}/{slug(one.name)}":
            return one
    raise DataError(f"There is no setting {name!r}; `efattn reproduce --plan` shows them.")


def some(rows: Split, group: str, number: int | None, seed: int) -> Split:
    """So many groups of those to test; of the others, the same where they are shared."""
    if number is None:
        return rows
    names = rows.test[group].unique().sort().to_numpy()
    kept = pl.Series(np.random.default_rng(seed).permutation(names)[:number]).implode()
    return Split(*(part.filter(pl.col(group).is_in(kept)) for part in rows))


def options_of(words: list[str], device: str, seed: int) -> dict[str, Any]:
    """OPTION=VALUE, or training.OPTION=VALUE."""
    model: dict[str, Any] = {"seed": seed}
    training: dict[str, Any] = {"device": device}
    for word in words:
        name, _, value = word.partition("=")
        target = training if name.startswith("training.") else model
        target[name.removeprefix("training.")] = _value(value)
    return {**model, "training": Training(**training)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def tried(setting: Setting, options: dict[str, Any], rows: Split, *, test: bool = False) -> Record:
    """Fitted to training rows with nothing but the setting's question told, and these options."""
    question = setting.entries[-1].make(0).get_params(deep=False)
    asked = {name: question[name] for name in ("context", "terms", "family")}
    estimator, start = EFA(**{**asked, **options}), time.perf_counter()
    estimator.fit(rows.train, **setting.roles, validation=rows.validation, progress=False)
    seconds = round(time.perf_counter() - start, 2)
    record: Record = {"experiment": setting.experiment, "setting": setting.name, "seconds": seconds}
    record |= {"epochs": len(estimator.history_), "commit": records.commit()}
    record |= {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"}
    record["parameters"] = saving.plain(estimator.get_params(deep=False))
    record["validation"] = measuring.overall(setting, estimator, rows.validation)
    record |= measuring.parts(setting, estimator, rows.validation)
    if test:
        record["test"] = measuring.overall(setting, estimator, rows.test)
    return record


def main(words: list[str] | None = None) -> Path:
    """The file that was written."""
    parser = argparse.ArgumentParser("python -m efattn.experiments.trial", description=__doc__)
    parser.add_argument("setting")
    parser.add_argument("options", nargs="*", metavar="OPTION=VALUE")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--groups", type=int, help="fewer, to try quickly")
    parser.add_argument("--test", action="store_true", help="look at test rows too")
    parser.add_argument("-o", "--output", type=Path, default=Path("trials"))
    asked = parser.parse_args(words)
    setting = setting_of(asked.setting)
    rows = some(setting.split(asked.seed), setting.roles["group"], asked.groups, asked.seed)
    record = tried(setting, options_of(asked.options, asked.device, asked.seed), rows, test=asked.test)
    title = slug(" ".join([asked.setting, *asked.options, *([f"groups {asked.groups}"] if asked.groups else [])]))
    path = asked.output / f"{title}-{asked.seed}.json"
    records.write(path, {"groups": asked.groups, "seed": asked.seed, **record})
    shown = record["validation"].get("lists", record["validation"])
    sys.stdout.write(json.dumps({"file": str(path), "seconds": record["seconds"], "validation": shown}) + "\n")
    return path


if __name__ == "__main__":
    main()
