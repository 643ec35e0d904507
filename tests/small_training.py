"""What the tests of training and of resuming share."""

from dataclasses import replace

import torch
from small import efa, ratings

from efattn import Training
from efattn.training import checkpoint as checkpoints

TABLE = ratings()
ROLES = {"group": "user", "item": "movie", "value": "real", "order": "at"}
STEPS = Training(
    epochs=4, tokens=40, rate=0.02, patience=1, decay="cosine", device="cpu", checkpoint_seconds=0.0, warmup=0.1
)
PLATEAU = replace(STEPS, decay="plateau", epochs=8, rate=0.1, warmup=0.0)
FULL = Training(epochs=3, tokens=10_000, device="cpu", optimiser="adam", decay="none", warmup=0.0)


def model(**parameters):
    return efa(**{"dropout": 0.2, "hide": 0.4, "training": STEPS, "seed": 1, **parameters})


def weights(fitted):
    return {name: x.clone() for name, x in fitted.model_.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(torch.equal(x, two[name]) for name, x in one.items())


def without_seconds(history):
    return [{name: x for name, x in record.items() if name != "seconds"} for record in history]


class Stop(Exception):
    """What stands for a process that dies."""


def dying_at(monkeypatch, number):
    """Die after so many checkpoints have been written."""
    write, count = checkpoints.Checkpoint.write, [0]

    def counted(self, *arguments):
        write(self, *arguments)
        count[0] += 1
        if count[0] == number:
            raise Stop

    monkeypatch.setattr(checkpoints.Checkpoint, "write", counted)
    return count
