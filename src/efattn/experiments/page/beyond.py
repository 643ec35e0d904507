"""Data the paper does not use: EFA's defaults beside latent factors with theirs, and the best peer."""

from collections.abc import Iterator

from efattn.experiments import summary
from efattn.experiments.page import comparisons
from efattn.experiments.page.blocks import Block, Bullets, Cell, Text, table
from efattn.experiments.page.results import Results, efa, entry, named
from efattn.experiments.presets import BEYOND
from efattn.experiments.settings import Entry, Setting

HEAD = ("setting", "best peer", "latent factors", "EFA, defaults", "EFA less latent factors", "EFA less best peer")
ABOUT = (
    "Data sets that the paper does not use, with nothing tuned: latent factors and EFA have the library's defaults, "
    "and there is no other preset. Losses, bold and differences are as in the leading table."
)


def blocks(results: Results) -> Iterator[Block]:
    yield Text(ABOUT)
    rows = [(setting, _shown(results, setting)) for setting in BEYOND]
    gaps = [(setting, _to_latent(results, setting)) for setting in BEYOND]
    peers = [(setting, comparisons.against(results, setting, efa(setting, "defaults"))) for setting in BEYOND]
    cells: list[list[str | Cell]] = []
    for (setting, shown), (_, gap), (_, other) in zip(rows, gaps, peers, strict=True):
        differences = [comparisons.difference(setting, gap), comparisons.difference(setting, other)]
        cells.append([named(setting), *comparisons.losses(results, setting, shown), *differences])
    yield table(HEAD, cells)
    latent = comparisons.where_efa_stands(gaps, "latent factors", "them")
    best = comparisons.where_efa_stands(peers, "the best peer")
    words = (
        *(f"EFA, defaults: {words}." for words in (latent, best) if words),
        *comparisons.uneven_seeds(results, rows),
    )
    if words:
        yield Bullets(words)


def _latent(setting: Setting) -> Entry | None:
    return entry(setting, "defaults", lambda model: model.startswith("latent factors"))


def _shown(results: Results, setting: Setting) -> list[Entry | None]:
    return [results.best_peer(setting), _latent(setting), efa(setting, "defaults")]


def _to_latent(results: Results, setting: Setting) -> comparisons.Gap:
    mine, theirs = (results.runs(setting, one) for one in (efa(setting, "defaults"), _latent(setting)))
    return summary.paired(setting, mine, theirs)
