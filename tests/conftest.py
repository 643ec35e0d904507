"""One thread per process: the tests are small, and pytest-xdist uses the cores."""

import copy
import functools
import hashlib
import os
import pickle

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import pytest
import torch

from efattn.estimators import deciding

torch.set_num_threads(1)
_DECIDED = {}


@pytest.fixture(autouse=True)
def _remembered(request):
    """Which family groups that are left out like best, for the same groups only once: most of a small fit's time. Of a
    test that patches something nothing is kept for others."""
    known = {} if "monkeypatch" in request.fixturenames else _DECIDED
    real = deciding.decided

    @functools.wraps(real)
    def decided(draft, *options):
        try:
            key = hashlib.sha256(pickle.dumps((draft, options, deciding.SPLITS, deciding.SECONDS))).digest()
        except (AttributeError, TypeError, pickle.PicklingError):  # a family of a test's own
            return real(draft, *options)
        if key not in known:
            known[key] = copy.deepcopy(real(draft, *options))
        return copy.deepcopy(known[key])

    deciding.decided = decided
    yield
    deciding.decided = real


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """A folder with the checkpoint of a fit that died."""
    from small_training import ROLES, TABLE, Stop, dying_at, model

    dying_at(monkeypatch, 2)
    with pytest.raises(Stop):
        model().fit(TABLE, **ROLES, checkpoint=tmp_path)
    monkeypatch.undo()
    return tmp_path


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """No data but what is bundled, and an empty cache."""
    monkeypatch.delenv("EFATTN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path
