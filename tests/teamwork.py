"""What the processes of a team do in tests: fits, and the same fits by one process."""

import contextlib
import json
import os
import sys
from dataclasses import replace

import polars as pl
import torch
from small import SIZES
from small_training import ROLES, STEPS, TABLE, Stop

from efattn import EFA, EfattnError
from efattn.simple import ShrunkMean
from efattn.training import checkpoint as checkpoints
from efattn.training import left_in, loop, teams, together

PLAIN = {**SIZES, "dropout": 0.0, "hide": 0.0, "seed": 1, "companions": None, "refit": False, "family": "gaussian"}
VALUE = {"terms": "value"}
RANDOM = {"dropout": 0.3, "hide": 0.5, **VALUE}
FITS = {
    "both terms": {"training": replace(STEPS, epochs=2)},
    "one group a batch": {"training": replace(STEPS, tokens=7, epochs=1), **VALUE},
    "members": {"training": replace(STEPS, epochs=1), "ensemble": 2, **VALUE},
    "defaults": {"training": replace(STEPS, epochs=2), "companions": [ShrunkMean()], "refit": True, **VALUE},
    "random": {"training": replace(STEPS, epochs=2, draws=2), **RANDOM},
    "drawn items": {"training": replace(STEPS, epochs=2, candidates=3), "terms": "item"},
    "little time": {"training": replace(STEPS, epochs=2000, patience=None, seconds=0.1), **VALUE},
}


def fitted(name, table=TABLE, **how):
    model = EFA(**PLAIN | FITS[name])
    return model.fit(table, **ROLES, progress=False, validation=0.2, **how)


def rank():
    return int(os.environ["RANK"])


def keep(model, name):
    model.save(f"{name}.{rank()}.efattn")


def fit_all():
    for name in FITS:
        with together() as team:
            keep(fitted(name, history=f"{name}.history"), name)
    assert team.rank == rank()
    fit_from_disk()
    sums = team.sum(2.0**40, 2.0**-10 * (1 + rank())).tolist()
    assert sums == [2.0**41, 3 * 2.0**-10]
    assert team.sum(torch.tensor(2.0**40 + rank() * 2.0**-10, dtype=torch.float64)).item() == 2.0**41 + 2.0**-10
    assert teams.current() is None
    check_gradients(team)


def fit_from_disk():
    """The first process makes groups on disk, the second finds them."""
    os.environ["XDG_CACHE_HOME"] = "cache"
    with together():
        teams.told("the table", lambda: TABLE.write_parquet("table.parquet"))
        keep(fitted("members", "table.parquet", on_disk=True), "from disk")


def check_gradients(team):
    """Of rows, of whole arrays, of a parameter that one process has no gradient of, and of one that none has."""
    rows, both, mine, nobody = (torch.nn.Parameter(torch.zeros(5, 2)) for _ in range(4))
    values = torch.arange(4.0).view(2, 2) + rank()
    rows.grad = torch.sparse_coo_tensor(torch.tensor([[rank(), 3]]), values, (5, 2), check_invariants=False)
    both.grad = torch.ones(5, 2) if rank() else rows.grad.clone()
    mine.grad = (
        torch.sparse_coo_tensor(torch.tensor([[4, 4]]), values, (5, 2), check_invariants=False) if rank() else None
    )
    team.add_gradients([rows, both, mine, nobody])
    whole = torch.tensor([[0.0, 1], [1, 2], [0, 0], [5, 7], [0, 0]])
    assert rows.grad.is_sparse
    assert torch.equal(rows.grad.to_dense(), whole)
    assert torch.equal(both.grad, torch.tensor([[1.0, 2], [1, 1], [1, 1], [3, 4], [1, 1]]))
    assert mine.grad.to_dense()[4].tolist() == [4.0, 6.0]
    assert nobody.grad is None


def die_at(number):
    """The first process dies after so many checkpoints."""
    write, count = checkpoints.Checkpoint.write, [0]

    def counted(self, *arguments):
        write(self, *arguments)
        count[0] += 1
        if count[0] == int(number):
            raise Stop

    checkpoints.Checkpoint.write = counted


def fit_until(name, number):
    die_at(number)
    with contextlib.suppress(Stop, teams.Lost), together():
        fitted(name, checkpoint="kept")


def go_on(name):
    with together():
        keep(fitted(name, checkpoint="kept", resume=bool(left_in("kept"))), "resumed")


def complaint(work):
    try:
        with together():
            work()
    except EfattnError as error:
        sys.stdout.write(json.dumps([type(error).__name__, str(error)]))


def fit_other_tables():
    table = TABLE.with_columns(real=pl.col("real") + rank())
    complaint(lambda: fitted("random", table))


def fit_with_a_loss_that_is_nan():
    sums = loop._Term.sums
    loop._Term.sums = lambda self, batch: (sums(self, batch)[0] * float("nan" if rank() else 1), sums(self, batch)[1])
    complaint(lambda: fitted("random"))
