"""How the page was made: the command, versions, machines, seeds and time."""

from collections import defaultdict
from collections.abc import Iterator

from efattn.experiments import theory
from efattn.experiments.page.blocks import Block, Heading, Text, table
from efattn.experiments.page.results import Results
from efattn.experiments.presets import SETTINGS
from efattn.experiments.strangers.tables import STRANGERS

COMMAND = "efattn reproduce --jobs 2 --pages docs"
ABOUT = (
    f"`{COMMAND}` runs what is missing and writes this page; `efattn reproduce cities --preset paper` is a part. "
    "Every run is one file in `results/EXPERIMENT/SETTING`, its scores by group are in `results/EXPERIMENT`, the "
    "strangers' files in `results/strangers`, the theory's in `results/theory`; this page is made from these files and "
    "from nothing else. A record has the test loss and the full log-likelihood, over all rows and by group, all "
    "parameters, versions, commit and seconds."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Heading("How it was made")
    yield Text(ABOUT)
    if not results.records and not results.theory and not results.strangers:
        yield Text("Nothing has run yet.")
        return
    entries = [(s, entry, protocol) for s in SETTINGS for entry in s.entries for protocol in entry.protocols]
    known = [len(results.runs(*one)) for one in entries]
    seeds = sorted({record["seed"] for record in results.records})
    parts = results.theory.values()
    tables = [record for record, _ in results.strangers.values()]
    total = sum(record["seconds"] for record in (*results.records, *tables, *parts))
    yield Text(
        f"{sum(known):,} runs of {sum(n > 0 for n in known):,} of the {len(entries):,} models, presets and protocols, "
        f"{len(tables)} of {len(STRANGERS)} strangers, and {len(parts)} of {len(theory.PARTS)} parts of the theory. "
        f"Seeds: {', '.join(map(str, seeds)) or 'none'}. {_time(total)} of fitting and computing in all."
    )
    yield from _machines(results)


def _machines(results: Results) -> Iterator[Block]:
    seconds: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for record in results.records:
        versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
        commit = (record.get("commit") or "not recorded")[:12]
        seconds[record["device"], versions, commit].append(record["seconds"])
    if seconds:
        rows = [[*where, f"{len(took):,}", _time(sum(took))] for where, took in sorted(seconds.items())]
        yield table(("device", "versions", "commit", "runs", "time"), rows, words=3)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
