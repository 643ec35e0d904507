"""Mixed models of groups: what the others of a group say of a row, against the conditional of a Gaussian."""

import pytest
import torch

from efattn.simple import mixed

BOTH = pytest.mark.parametrize("context", ["others", "past"])


def rows_and_residuals(seed=0):
    generator = torch.Generator().manual_seed(seed)
    exists = torch.tensor([[True] * 5, [True, True, True, False, False]])
    seen = exists.clone()
    seen[0, 2] = False
    time = torch.rand(2, 5, dtype=torch.float64, generator=generator).sort(1).values * 4
    item = torch.tensor([[0, 1, 0, 2, 1], [1, 1, 0, 0, 0]])
    x = torch.randn(2, 5, 2, dtype=torch.float64, generator=generator)
    rest = torch.randn(2, 5, dtype=torch.float64, generator=generator) * seen
    noise = torch.rand(2, 5, dtype=torch.float64, generator=generator) + 0.5
    return mixed.Rows(exists, item, time, x), mixed.Seen(rest, noise, seen)


THETA = torch.linspace(-1.5, 0.5, mixed.size(2), dtype=torch.float64)


@BOTH
def test_a_mixed_model_says_what_the_conditional_of_a_gaussian_says(context):
    rows, given = rows_and_residuals()
    mean, variance = mixed.predict(THETA, rows, given, context)
    cov = mixed.covariance(THETA, rows)
    for b in range(2):
        for i in range(int(rows.exists[b].sum())):
            context_rows = [j for j in range(5) if given.seen[b, j] and (j < i if context == "past" else j != i)]
            k = cov[b][i, context_rows]
            inside = cov[b][context_rows][:, context_rows] + torch.diag(given.noise[b, context_rows] * THETA[0].exp())
            weights = torch.linalg.solve(inside, k) if context_rows else k
            assert float(mean[b, i]) == pytest.approx(float(weights @ given.rest[b, context_rows]), abs=1e-6)
            assert float(variance[b, i]) == pytest.approx(float(cov[b][i, i] - weights @ k), rel=1e-5, abs=1e-6)


@BOTH
def test_long_groups_are_predicted_by_their_level(context, monkeypatch):
    rows, given = rows_and_residuals()
    theta = torch.full_like(THETA, mixed.NONE)
    theta[:2] = torch.tensor([-0.3, 0.2])
    whole = mixed.predict(theta, rows, given, context)
    monkeypatch.setattr(mixed, "LONG", 1)
    short = mixed.predict(theta, rows, given, context)
    for a, b in zip(whole, short, strict=True):
        torch.testing.assert_close(a[rows.exists], b[rows.exists], rtol=1e-5, atol=1e-6)


def test_least_squares_are_those_of_the_whole_covariance():
    rows, given = rows_and_residuals()
    design = torch.randn(2, 5, 3, dtype=torch.float64)
    matrix, vector = mixed.equations(THETA, rows, given, design)
    exact, right = torch.zeros(3, 3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for b in range(2):
        s = given.seen[b]
        cov = mixed.covariance(THETA, rows)[b][s][:, s] + torch.diag(given.noise[b, s] * THETA[0].exp())
        exact += design[b, s].T @ torch.linalg.solve(cov, design[b, s])
        right += design[b, s].T @ torch.linalg.solve(cov, given.rest[b, s])
    torch.testing.assert_close(matrix, exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(vector, right, rtol=1e-5, atol=1e-6)
