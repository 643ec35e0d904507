"""A page about a model as one HTML file, and a card for a notebook, from Jinja2 templates with every name escaped."""

import datetime
import functools
from pathlib import Path
from typing import Any

from efattn import __version__, plots, storage
from efattn.errors import DataError
from efattn.inference import Fitted
from efattn.inference.summary import last_fit
from efattn.plots.items import mixture_shares
from efattn.reporting import about, findings, scores
from efattn.reporting.blocks import Grid, Section, attempted, score
from efattn.reporting.look import Look

MOST_ROWS = 20_000


def report(
    model: Any,
    table: Any = None,
    path: str | Path = "report.html",
    *,
    rows: int = MOST_ROWS,
    seed: int = 0,
    title: str | None = None,
) -> Path:
    """Write one self-contained page about a model and a table: what the data are, what the model is, how the fit went,
    scores beside simple models, calibration, attention, items, the best and worst predictions. No script, no network.

        efattn.report(model, test, "report.html")

    model: a fitted one; table: a frame or a file, best with groups that the fit has not seen, None for a page about the
    model alone; rows: a larger table is looked at in part, whole groups drawn with this seed."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise DataError(f"rows is a whole number >= 1; found {rows!r}.", option="rows")
    fitted: Fitted = plots.style.fitted(model)
    text = html(fitted, None if table is None else Look.at(fitted, table, rows, seed), title)
    try:
        with storage.beside(path) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{str(path)!r} cannot be written: {error.strerror or error}. Choose another path.") from error
    return Path(path)


def html(fitted: Fitted, look: Look | None, title: str | None = None) -> str:
    """The page as text."""
    roles = fitted.schema.roles
    what = " and ".join(name for role in ("item", "value") if role in fitted.terms for name in roles.of(role))
    what = what if fitted.wide is None else "a wide table"
    when = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    said = {
        "title": title or f"{fitted.estimator} of {what}",
        "lead": about.lead(fitted),
        "tiles": about.tiles(fitted, look),
        "sections": [one for one in _sections(fitted, look, when) if one.blocks],
        "style": _environment().get_template("style.css").render(),
    }
    return _environment().get_template("report.html").render(said)


def _sections(fitted: Fitted, look: Look | None, when: str) -> list[Section]:
    found = [Section("Model", "model", about.model(fitted, __version__, when))]
    if look is not None:
        found.insert(0, Section("Data", "data", about.data(look)))
    if fitted.history:
        found.append(Section("Fit", "fit", attempted(lambda: plots.history(fitted), "history")))
    beside = [*scores.held_out(fitted), *(scores.tables(look) if look is not None else ())]
    found.append(Section("Beside simple models", "scores", beside))
    found.append(Section("Shares of the mixture", "shares", _shares(fitted)))
    if look is not None:
        found.append(Section("How far it can be trusted", "trust", findings.trust(look)))
        found.append(Section("Best and worst", "extremes", findings.extremes(look)))
        found.append(Section("Where it errs", "errors", findings.residuals(look)))
        found.append(Section("What is missing", "missing", findings.gaps(look)))
        if findings.has_attention(fitted):
            found.append(Section("What it looks at", "attention", findings.attention(look)))
    if fitted.schema.vocabulary is not None:
        found.append(Section("Items", "items", findings.items(fitted, look)))
    found.append(Section("Notes", "notes", about.notes(fitted, look)))
    return found


def _shares(fitted: Fitted) -> list[Any]:
    if not any(fitted.companions.get(name) for name in fitted.names):
        return []
    blocks: list[Any] = attempted(lambda: plots.shares(fitted), "shares")
    for name, several in fitted.companions.items():
        if all(one.new is None for one in several):
            continue
        pairs = [(one.share, one.share if one.new is None else one.new) for one in several]
        left = [max(1 - sum(column), 0.0) for column in zip(*pairs, strict=True)]
        kinds = [next(iter(mixture_shares(fitted, name))), *(one.recipe.label for one in several)]
        rows = [[kind, *(f"{x:.1%}" for x in mine)] for kind, mine in zip(kinds, [left, *pairs], strict=True)]
        words = f"{name}, also where a row's item is new."
        blocks.append(Grid(("part", "share", "of items never seen"), rows, 1, words))
    return blocks


def card(fitted: Fitted) -> str:
    """A few lines of HTML, for a notebook."""
    lines = [["", about.lead(fitted)]]
    if fitted.schema.vocabulary is not None and fitted.wide is None:
        lines.append(["items", f"{len(fitted.vocabulary):,}"])
    for name in fitted.names:
        shares = ", ".join(f"{kind} {share:.0%}" for kind, share in mixture_shares(fitted, name).items() if share)
        lines.append([f"{name}: family", _family(fitted, name)])
        lines += [[f"{name}: shares", shares]] if fitted.companions.get(name) else []
        kept = _kept(fitted, name)
        lines += [[f"{name}: held out", f"log score {score(kept)}"]] if kept is not None else []
    if len(fitted.members) > 1:
        lines.append(["members", str(len(fitted.members))])
    lines += [["interrupted", "the fit did not end"]] if fitted.interrupted else []
    return _environment().get_template("card.html").render(name=fitted.estimator, lines=lines)


def _family(fitted: Fitted, name: str) -> str:
    term = fitted.members[0][name]
    if term.of_items:
        return f"categorical, {term.family.size:,} items"
    parts = () if fitted.family is None else fitted.family.parts
    text = ", ".join(map(repr, parts))
    return text if len(text) <= 120 else text[:119] + "…"


def _kept(fitted: Fitted, name: str) -> float | None:
    """The log score per held-out target that the fit had: of the mixture, or of the network."""
    if name in fitted.held_out or fitted.companions.get(name):
        return fitted.held_out.get(name, {}).get("together")
    scored = [r["validation"] for r in last_fit(fitted, name) if r["validation"] is not None]
    return max(scored) + fitted.units.get(name, 0.0) if scored else None


@functools.cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("efattn.reporting")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
