"""What a fit says in Python: what was understood, and what came of it."""

from collections.abc import Sequence

from efattn import inference
from efattn.errors import Note, counted
from efattn.estimators.blueprint import Blueprint
from efattn.estimators.progress import Stages
from efattn.inference import Fitted
from efattn.inference.summary import last_fit

REFIT = "Fitted once more to all groups, those held out too; the scores told above are of the first fit."
FOLDS = (
    "Each group was held out once, in {} folds, and the scores told above are of what did not see it. The networks of "
    "all folds predict together; simple models beside them are fitted once more to all groups."
)
SAID = (
    "on disk",
    "family",
    "families",
    "own attributes",
    "times",
    "every item",
    "sizes",
)  # kinds of notes that a fit says aloud


def describe(blueprint: Blueprint, stages: Stages, wide: bool = False) -> None:
    """What was understood, a line each; wide: of a table whose rows are groups and whose columns are items."""
    groups = blueprint.groups
    assert groups is not None
    held = 0 if blueprint.held is None else len(blueprint.held)
    told = f"each held out once, in {len(blueprint.folds)} folds" if blueprint.folds else f"{held:,} held out"
    if wide:
        stages.say(f"{counted(len(groups), 'row')}, {counted(blueprint.items, 'column')} to model; {told}.")
    else:
        items = f", {counted(blueprint.items, 'item')}" if blueprint.items else ""
        stages.say(f"{counted(groups.count, 'row')} in {counted(len(groups), 'group')}{items}; {told}.")
    for note in blueprint.notes:
        inference.announce(note)
        if note.kind in SAID:
            stages.say(str(note))


def sampled(light: Blueprint) -> Note:
    """About what looks at some groups of a table on disk."""
    assert light.groups is not None
    rows = counted(light.groups.count, "row")
    words = f"Families, units and simple models know {counted(len(light.groups), 'group')} of {rows}, drawn at random"
    return Note("sample", f"{words}; networks are trained on all.", option="on_disk")


def conclude(fitted: Fitted, notes: Sequence[Note], stages: Stages) -> None:
    """How each term was fitted, and what was chosen."""
    for name in fitted.names:
        several = [records for k in range(len(fitted.members)) if (records := last_fit(fitted, name, k))]
        best = [max((r["validation"] for r in some if r["validation"] is not None), default=None) for some in several]
        scored = [score for score in best if score is not None]
        if several:
            mean = sum(scored) / len(scored) + fitted.units.get(name, 0.0) if scored else 0.0
            told = f", best on held-out groups {mean:.4f} nats" if scored else ""
            told += f", the mean of {len(several)}" if scored and len(several) > 1 else ""
            seconds = sum(record["seconds"] for some in several for record in some)
            stages.say(f"{name!r} fitted, epochs: {sum(map(len, several))}, {seconds:.1f} s{told}.")
    for note in notes:
        stages.say(str(note))
