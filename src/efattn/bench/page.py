"""The page of benchmarks: each aim beside what the results say of it, met or missed, with what was tried.

    benchmarks/results/*.json  ->  docs/speed.md          `efattn bench page`

It is made from those files and from nothing else; what has not run is named as missing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from efattn import storage
from efattn.bench import BENCHES
from efattn.bench.aims import AIMS, Aim
from efattn.bench.compare import read
from efattn.bench.figures import Figure, figures
from efattn.experiments.page import markdown
from efattn.experiments.page.blocks import Block, Bullets, Cell, Heading, Text, table

TITLE, NONE = "Speed and memory", "\N{EN DASH}"
ABOUT = (
    "Made by `efattn bench page` from `benchmarks/results/`, which `efattn bench` writes. Times are ratios within one "
    "run wherever they can be: both sides on the same machine, in the same minutes."
)
Results = Mapping[str, dict[str, Any]]


def write(pages: Path, results: Path) -> Path:
    """pages: the folder to write to. results: of benches."""
    text = markdown.page(TITLE, list(blocks(read(results))))
    pages.mkdir(parents=True, exist_ok=True)
    with storage.beside(pages / "speed.md") as part:
        part.write_text(text, encoding="utf-8")
    return pages / "speed.md"


def blocks(results: Results) -> Iterator[Block]:
    yield Text(ABOUT)
    yield Heading("Aims")
    values = {(name, x.name): x.value for name, one in results.items() for x in figures(name, one["records"])}
    rows = [_row(aim, values.get((aim.bench, aim.figure))) for aim in AIMS]
    yield table(("what", "figure", "aim", "reached", "met"), rows, words=2)
    met = sum(row[-1] == Cell("met", bold=True) for row in rows)
    missed = sum(row[-1] == Cell("missed") for row in rows)
    rest = len(rows) - met - missed
    yield Text(f"{met} met, {missed} missed" + (f", {rest} not run yet." if rest else "."))
    yield Heading("What was tried")
    yield Bullets(tuple(f"{aim.about[0].upper()}{aim.about[1:]}: {aim.tried}" for aim in AIMS if aim.tried))
    words = {one.name: one.words for one in BENCHES}
    for name in [*words, *(x for x in results if x not in words)]:
        if name in results:
            yield from _bench(name, words.get(name, ""), results[name])


def _row(aim: Aim, value: float | None) -> list[str | Cell]:
    said = Cell("not run yet") if value is None else Cell("met", bold=True) if aim.met(value) else Cell("missed")
    return [aim.about, f"{aim.bench}: {aim.figure}", aim.words, NONE if value is None else number(value), said]


def _bench(name: str, words: str, one: dict[str, Any]) -> Iterator[Block]:
    found = figures(name, one["records"])
    if not found:
        return
    yield Heading(name)
    yield Text(f"{words[0].upper()}{words[1:]}. {made(one['about'])}" if words else made(one["about"]))
    yield table(("figure", "value", "better"), [_figure(x) for x in found], words=1)


def _figure(x: Figure) -> list[str]:
    return [x.name, number(x.value), x.better]


def made(about: Mapping[str, Any]) -> str:
    """Where and when, as far as the file says."""
    machine = about.get("machine") or {}
    where = ", ".join(str(machine[key]) for key in ("processor", "gpu", "torch") if machine.get(key))
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    commit = f"commit `{about['commit']}`" if about.get("commit") else f"version {about.get('version', NONE)}"
    command = f"`{about['command']}`" if about.get("command") else ""
    load = f"load {about['load']:g}" if about.get("load") is not None else ""
    return ", ".join(filter(None, (command, where, cores, load, commit))) + "."


def number(value: float) -> str:
    return f"{value:.1e}" if value and abs(value) < 1e-3 else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"
