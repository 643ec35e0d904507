"""What fit says: what was understood before training, and a verdict after it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from efattn.cli import output
from efattn.cli.messages import in_words, note, say, tell
from efattn.cli.outcome import Interrupted
from efattn.errors import counted

if TYPE_CHECKING:
    from efattn.estimators.blueprint import Blueprint

LEVEL = 5e-5  # nats: a difference that is 0.0000 where it is shown


def report(estimator: Any, blueprint: "Blueprint", path: Path, compare: bool, as_json: bool) -> None:
    """What was fitted, beside what is easily had."""
    from efattn.estimators.verdict import verdict

    try:
        comparison = verdict(estimator, blueprint) if compare else {}
    except KeyboardInterrupt:
        raise Interrupted(f"Interrupted while comparing; the model is in {str(path)!r}.") from None
    if as_json:
        output.print_json({"model": str(path), **_plain(understood(blueprint)), "held_out": comparison})
        return
    if comparison:
        import polars as pl

        name = type(estimator).__name__
        tell("\nHeld-out log-likelihood per target, in nats: the higher, the better.\n")
        alone = "each item alone" if blueprint.items else "no context"
        heads = {"model": name, "network": "network alone", "latent": "latent factors", "marginal": alone}
        rows = {"term": list(comparison)} | {head: [s[k] for s in comparison.values()] for k, head in heads.items()}
        known = [head for head, column in rows.items() if any(x is not None for x in column)]
        output.show(pl.DataFrame(rows).select(known))
        tell()
        for term, scores in comparison.items():
            tell(_sentence(name, term, scores, bool(blueprint.items)))
    tell(f"Wrote {path}. Next: efattn summary {path}")


def _sentence(name: str, term: str, scores: dict[str, float | None], items: bool = True) -> str:
    mine, others = scores["model"], {k: x for k in ("latent", "marginal") if (x := scores[k]) is not None}
    if mine is None or not others:
        return f"{term}: nothing held out could be scored."
    best = max(others, key=lambda k: others[k])
    marginal = "each item's own distribution" if items else "one distribution for all rows"
    words = {"latent": "the latent factor model", "marginal": marginal}[best]
    if abs(mine - others[best]) < LEVEL:
        return f"{term}: {name} and {words} are level."
    if mine > others[best]:
        return f"{term}: {name} is ahead of {words} by {mine - others[best]:.4f}."
    advice = {"latent": "try more --steps, or another --rate or --width"}
    advice["marginal"] = "fit for longer, or check that groups and context are what you mean"
    return f"{term}: {words} is ahead by {others[best] - mine:.4f}; {advice[best]}."


def understood(blueprint: "Blueprint") -> dict[str, Any]:
    """What is known before training starts."""
    import numpy as np

    from efattn.estimators.looking import missing_values

    groups, roles = blueprint.groups, blueprint.schema.roles
    assert groups is not None
    lengths = groups.lengths
    facts: dict[str, Any] = {"rows": groups.count, "groups": len(groups), "group": list(roles.of("group"))}
    facts["lengths"] = {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())}
    facts |= {"items": blueprint.items, "item": list(roles.of("item")), "terms": list(blueprint.terms)}
    facts["held_out_groups"] = 0 if blueprint.held is None else len(blueprint.held)
    facts["folds"] = len(blueprint.folds)
    facts["families"], facts["missing"] = {}, {}
    why = {choice.columns[0]: choice.why or "as asked" for choice in blueprint.choices}
    for part, _, columns in blueprint.family.slices() if blueprint.family is not None else ():
        names = roles.of("value")[columns]
        facts["families"][",".join(names)] = {"family": part.brief, "why": why.get(names[0])}
    absent = missing_values(groups)
    if absent is not None:
        facts["missing"] = {name: int(n) for name, n in zip(roles.of("value"), absent, strict=True)}
    facts["notes"] = [one for one in blueprint.notes if one.kind != "family"]
    return facts


def conclude(estimator: Any) -> None:
    """What was decided while it was fitted."""
    for one in estimator.notes_:
        if one.kind in ("companions", "refit"):
            note(one)


def describe(facts: dict[str, Any], source: str, wide: bool = False) -> None:
    """The same in words, on standard error."""
    name = "standard input" if source == "-" else source
    if wide:
        empty, rows = sum(facts["missing"].values()), counted(facts["groups"], "row")
        columns = f"{counted(facts['items'], 'column')} to model"
        say(f"{name}: {rows}, {columns}; {empty:,} of {facts['rows']:,} cells are empty.")
    else:
        _describe_long(facts, name)
    what = "row" if wide else "group"
    held = counted(facts["held_out_groups"], what)
    held = f"each {what} once, in {facts['folds']} folds" if facts["folds"] else held
    say(f"{'' if wide else 'Modelled: ' + ' and '.join(facts['terms']) + '. '}Held out: {held}.")
    for one in facts["notes"]:
        note(one)


def _describe_long(facts: dict[str, Any], name: str) -> None:
    lengths = facts["lengths"]
    by = f" ({', '.join(facts['group'])})" if facts["group"] else ""
    spread = f"{lengths['min']} to {lengths['max']} rows, median {lengths['median']:g}"
    say(f"{name}: {counted(facts['rows'], 'row')} in {counted(facts['groups'], 'group')}{by} of {spread}.")
    if facts["items"]:
        say(f"{counted(facts['items'], 'item')} ({', '.join(facts['item'])}).")
    for names, family in facts["families"].items():
        absent = sum(facts["missing"][name] for name in facts["missing"] if name in names.split(","))
        why = f", {family['why']}" if family["why"] else ""
        say(f"{names}: {family['family']}{why}; {counted(absent, 'value') if absent else 'no values'} missing.")


def _plain(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "notes": [in_words(one) for one in facts["notes"]]}
