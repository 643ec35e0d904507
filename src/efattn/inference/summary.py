"""A fitted model in words, and the same as data. Scores are in the table's units."""

from collections.abc import Callable, Sequence
from typing import Any

from efattn.data.item_features import ItemFeatures
from efattn.errors import Note, counted
from efattn.families import Product
from efattn.inference import calibration
from efattn.inference.fitted import Companion, Fitted

LOOKS_AT = {
    "past": "what came earlier",
    "others": "all others of its group",
    "any": "any part of its group, in any order",
}


def summary(fitted: Fitted, show: Callable[[Note], str] = str) -> str:
    """show: how notes read where it is told."""
    schema, sizes, several = fitted.schema, fitted.sizes, len(fitted.members)
    lines = [f"{fitted.estimator}: each observation given {LOOKS_AT[fitted.context]}."]
    items = "" if schema.vocabulary is None else f", {counted(len(schema.vocabulary), 'item')}"
    if fitted.wide is not None:
        lines = [f"{fitted.estimator} of a wide table: each cell given the rest of its row."]
        lines.append(f"Fitted to {counted(sizes['groups'], 'row')} of {counted(len(fitted.wide), 'column')}.")
    else:
        lines.append(f"Fitted to {counted(sizes['rows'], 'row')} in {counted(sizes['groups'], 'group')}{items}.")
    if schema.features is not None:
        lines.append(_features(schema.features))
    if several > 1:
        lines.append(f"{several} members, whose mixture predicts.")
    for name in fitted.names:
        lines += _term_lines(fitted, name)
    if schema.standardiser is not None and not schema.standardiser.is_identity:
        ways = zip(schema.roles.of("value"), schema.standardiser.methods, strict=True)
        inside = ", ".join(f"{name} ({how})" for name, how in ways if how != "none")
        lines += [f"Standardised inside: {inside}."] if inside else []
    lines += [f"{told} that it was not fitted to." for told in calibration.told(fitted.calibration)]
    if schema.lags:
        lines.append(f"Sees {schema.lags} earlier time step{'s' if schema.lags > 1 else ''}.")
    if fitted.context != "past":
        lines.append("Scores are leave-one-out log scores, each row given the others of its group, and no likelihoods.")
    if fitted.context == "any":
        lines.append("joint_log_density has the density of whole groups, a mixture over orders.")
    return "\n".join([*lines, *(f"Note: {show(note)}" for note in fitted.notes)])


def _features(known: ItemFeatures) -> str:
    columns, new = ", ".join(column.name for column in known.columns), len(known) - known.trained
    more = f"; {counted(new, 'item')} by these alone" if new else ""
    return f"Items are known by {columns} too ({counted(known.levels, 'level')}{more})."


def _term_lines(fitted: Fitted, name: str) -> list[str]:
    several, term = len(fitted.members), fitted.members[0][name]
    if isinstance(term.family, Product):
        parts = fitted.family.parts if fitted.family is not None else term.family.parts
        what = ", ".join(part.brief for part in parts)
    else:
        what = f"one of {term.family.size} items"
    ruled_out = ", an item already in the group ruled out" if term.support == "distinct" and term.of_items else ""
    count = sum(p.numel() for p in term.parameters())
    size = f"; {count:,} parameters{' each' if several > 1 else ''}" if count else ""
    lines = [f"Term {name!r}: {what}{ruled_out}{size}."]
    companions = fitted.companions.get(name, ())
    if companions and name in fitted.powers:
        told = ", ".join(f"{one.recipe.label} {one.power:.2f}" for one in companions)
        lines.append(f"  Powers in a pool with the companions: the network {fitted.powers[name]:.2f}, {told}.")
    elif companions:
        told = ", ".join(f"{one.recipe.label} {one.share:.0%}" for one in companions)
        left = max(1 - sum(one.share for one in companions), 0.0)
        simple = " Most of it is a simple model." if max(one.share for one in companions) > 0.5 else ""
        who = "networks" if several > 1 else "network"
        lines.append(f"  Companions and their shares of the mixture: {told}; the {who} {left:.0%}.{simple}")
        spread = [one.recipe.label for one in companions if one.moves]
        spread += [f"the {who}"] if name in fitted.moves else []
        if spread:
            told = ", ".join(spread)
            lines.append(f"  Laws that are narrower, wider or moved, as held-out groups ask for, too: {told}.")
        if any(one.new is not None for one in companions):
            new = {one.recipe.label: one.new or 0.0 for one in companions}
            told = ", ".join(f"{kind} {share:.0%}" for kind, share in new.items() if share)
            told = f"{told}; the" if told else "the"
            lines.append(f"  Of items never seen: {told} {who} {max(1 - sum(new.values()), 0):.0%}.")
        lines += _with_holes(companions, who)
    for member in range(several):
        fit = last_fit(fitted, name, member)
        if fit:
            fold = fit[-1].get("fold")
            label = f"Fold {fold + 1}: " if fold is not None else f"Member {member}: " if several > 1 else ""
            lines.append(f"  {label}{_fit_words(fit, fitted.units.get(name, 0.0))}")
    return lines


def _with_holes(companions: Sequence[Companion], who: str) -> list[str]:
    """Where most is missing."""
    if not companions[0].holes:
        return []
    part = companions[0].holes[-1][0]
    mine = {one.recipe.label: one.holes[-1][1] for one in companions}
    told = ", ".join(f"{kind} {share:.0%}" for kind, share in mine.items() if share >= 0.005)
    told = f"{told}; the" if told else "the"
    return [f"  Where {part:.0%} of the values are missing: {told} {who} {max(1 - sum(mine.values()), 0):.0%}."]


def last_fit(fitted: Fitted, name: str, member: int = 0) -> list[dict[str, Any]]:
    """The records of a term's last fit: an update begins anew."""
    mine = [record for record in fitted.history if record["term"] == name and record.get("member", 0) == member]
    return mine[max((i for i, record in enumerate(mine) if record["epoch"] == 1), default=0) :]


def _fit_words(records: list[dict[str, Any]], units: float) -> str:
    last, seconds = records[-1], sum(record["seconds"] for record in records)
    train = last["train"] + units
    epochs = f"{len(records)} of {counted(last['epochs'], 'epoch')}"
    told = f"{epochs} in {seconds:.1f} s, training log-likelihood {train:.4f}"
    scored = [record for record in records if record["validation"] is not None]
    if not scored:
        return f"{told} per target; nothing held out."
    best = max(scored, key=lambda record: record["validation"])
    return f"{told}; best on held-out groups {best['validation'] + units:.4f} per target, at epoch {best['epoch']}."


def as_data(fitted: Fitted) -> dict[str, Any]:
    """What `summary` says, as JSON."""
    terms = {}
    for name in fitted.names:
        term, companions = fitted.members[0][name], fitted.companions.get(name, ())
        terms[name] = {
            "family": repr(term.family),
            "parameters": sum(p.numel() for p in term.parameters()),
            "support": term.support,
            "companions": [
                {**one.recipe.to_json(), "share": one.share, "new_share": one.new, "hole_shares": one.holes}
                | ({"power": one.power} if name in fitted.powers else {})
                for one in companions
            ],
            "units": fitted.units.get(name, 0.0),
            "held_out": dict(fitted.held_out.get(name, {})),
            "history": [record for record in fitted.history if record["term"] == name],
        }
    about = {"estimator": fitted.estimator, "context": fitted.context, **fitted.sizes}
    about |= {"items": len(fitted.schema.vocabulary or ()), "members": len(fitted.members)}
    about["calibration"] = {name: {"rows": x.rows, "groups": x.groups} for name, x in fitted.calibration.items()}
    about["wide"] = None if fitted.wide is None else fitted.wide.to_json()
    about |= {"columns": fitted.schema.roles.to_json(), "lags": fitted.schema.lags, "terms": terms}
    return about | {"notes": [note.to_json() for note in fitted.notes], "summary": summary(fitted)}
