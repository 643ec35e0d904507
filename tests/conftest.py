"""One thread per process: the tests are small, and pytest-xdist uses the cores."""

import os

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A folder with the checkpoint of a fit that died."""
    from small_training import ROLES, TABLE, Stop, dying_at, model

    dying_at(monkeypatch, 2)
    with pytest.raises(Stop):
        model().fit(TABLE, **ROLES, checkpoint=tmp_path)
    monkeypatch.undo()
    return tmp_path
