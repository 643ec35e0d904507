"""A factor model fitted to incomplete rows by variational Bayes: of thousands of columns, each row a few of them.

    y_gc = m_c + l_c . z_g + e,     z_g ~ N(0, I),   e ~ N(0, s_c^2),   (m_c, l_c) ~ N(b, diag t^2)

    rows      q(z_g)      precision  I + sum_c (l_c l_c' + C_c) / s_c^2
    columns   q(m_c, l_c) precision  diag 1 / t^2 + sum_g E[(1, z_g)(1, z_g)'] / s_c^2,    its inverse is C_c

b, t and s are those under which the data are most likely, so that the amount of shrinking needs no search: a factor
that explains nothing has t -> 0 and is dropped, a rare column stays near b. Where all l_c = b it is a model of column
and row effects. What is kept is the mean of the covariance: factors l_c and noise s_c^2 + tr C_c.
"""

import time
from typing import Any, NamedTuple

import numpy as np

FEWEST, MOST = 5.0, 1000.0  # rows that the overall noise counts for in a column's own: as noise differs by column
DEAD = 0.05  # a factor that a row of usual size tells less of, compared with what is known before, is dropped
ROUNDS, LEAST, STILL = 150, 30, 1e-5


class Entries(NamedTuple):
    """Observed entries: row and column of each, and its value; how many rows and columns there are; block (column,):
    columns of the same block have the same b."""

    row: np.ndarray
    column: np.ndarray
    y: np.ndarray
    rows: int
    columns: int
    block: np.ndarray


class Factors(NamedTuple):
    """mean (column + 1,), loadings (column + 1, factor), noise (column + 1,): the last is a column never seen."""

    mean: np.ndarray
    loadings: np.ndarray
    noise: np.ndarray


class _State(NamedTuple):
    """theta (column, 1 + factor): mean and loadings; spread: their covariances C; noise: s^2; base: b by block; prior:
    t^2."""

    theta: np.ndarray
    spread: np.ndarray
    noise: np.ndarray
    base: np.ndarray
    prior: np.ndarray


def fit(data: Entries, rank: int, end: float = float("inf")) -> Factors:
    """rank: how many factors at most; end: the clock (time.thread_time) at which what was found is kept."""
    centre = float(data.y.mean())
    scale = float(data.y.std()) or 1.0
    data = data._replace(y=(data.y - centre) / scale)
    sums, state = _Sums(data), _start(data, rank)
    before = np.inf
    for number in range(ROUNDS):
        state, second = _round(data, sums, state)
        state = _alive(_turned(data, state, second), sums.usual)
        left = float(state.noise @ sums.count / sums.count.sum())
        if number >= LEAST and (abs(before - left) < STILL * left or time.thread_time() > end):
            break
        before = left
    unseen = state.base[0]
    noise = np.append(state.noise + np.trace(state.spread, axis1=1, axis2=2), left + state.prior.sum())
    theta = np.concatenate([state.theta, unseen[None]])
    return Factors(centre + scale * theta[:, 0], scale * theta[:, 1:], scale**2 * noise)


class _Sums:
    """Sums over the entries of rows and of columns, as sparse matrices."""

    def __init__(self, data: Entries) -> None:
        from scipy import sparse

        def table(x: np.ndarray) -> Any:
            return sparse.csr_matrix((x, (data.row, data.column)), shape=(data.rows, data.columns))

        self.there, self.y = table(np.ones(len(data.y))), table(data.y)
        self.there_by_column, self.y_by_column = self.there.T.tocsr(), self.y.T.tocsr()
        self.count = np.bincount(data.column, minlength=data.columns).astype(float)
        by_row = np.bincount(data.row, minlength=data.rows)
        self.usual = float((by_row**2).sum() / by_row.sum())
        self.squares = np.bincount(data.column, data.y**2, minlength=data.columns)


def _start(data: Entries, rank: int) -> _State:
    draws = np.random.default_rng(0).standard_normal((data.columns, rank))
    total, count = (np.bincount(data.column, x, minlength=data.columns) for x in (data.y, np.ones(len(data.y))))
    theta = np.concatenate([(total / (count + 5))[:, None], 0.1 * draws], 1)
    theta[:, 1] = 0.4
    size = rank + 1
    base = np.zeros((int(data.block.max(initial=0)) + 1, size))
    base[:, 1] = 0.4
    prior = np.r_[0.25, 0.05, np.full(rank - 1, 0.02)]
    return _State(theta, np.zeros((data.columns, size, size)), np.full(data.columns, 0.8), base, prior)


def _round(data: Entries, sums: _Sums, state: _State) -> tuple[_State, np.ndarray]:
    """Rows, then columns; and the mean of E[z z'] over rows."""
    theta, spread, noise, base, prior = state
    size, columns = theta.shape[1], data.columns
    mean, loadings = theta[:, 0], theta[:, 1:]
    # rows
    outer = (loadings[:, :, None] * loadings[:, None] + spread[:, 1:, 1:]) / noise[:, None, None]
    precision = (sums.there @ outer.reshape(columns, -1)).reshape(-1, size - 1, size - 1) + np.eye(size - 1)
    pull = sums.y @ (loadings / noise[:, None])
    pull -= sums.there @ ((mean[:, None] * loadings + spread[:, 0, 1:]) / noise[:, None])
    covariance = np.linalg.inv(precision)
    z = (covariance @ pull[..., None])[..., 0]
    one = np.concatenate([np.ones((len(z), 1)), z], 1)
    moments = one[:, :, None] * one[:, None]
    moments[:, 1:, 1:] += covariance
    # columns
    s = (sums.there_by_column @ moments.reshape(len(z), -1)).reshape(columns, size, size)
    t = sums.y_by_column @ one
    spread = np.linalg.inv(s / noise[:, None, None] + np.diag(1 / prior))
    theta = (spread @ (t / noise[:, None] + base[data.block] / prior)[..., None])[..., 0]
    rest = sums.squares - 2 * (theta * t).sum(1) + ((theta[:, :, None] * theta[:, None] + spread) * s).sum((1, 2))
    noise = _noise(rest, sums.count)
    return _State(theta, spread, noise, base, prior), moments[:, 1:, 1:].mean(0)


def _noise(rest: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Sums of squares as variances, each drawn to the overall one as far as they differ no more than chance has it."""
    overall = max(float(rest.sum() / count.sum()), 1e-6)
    ratio = rest / np.maximum(count, 1) / overall
    differ = float((count * (ratio - 1) ** 2 - 2 * (count > 0)).sum() / count.sum())
    prior = float(np.clip(2 / max(differ, 1e-9), FEWEST, MOST))
    return np.maximum((rest + prior * overall) / (count + prior), 1e-3 * overall)


def _turned(data: Entries, state: _State, second: np.ndarray) -> _State:
    """The same model with E[z z'] = I, and factors turned so that t is diagonal: rounds are fewer this way."""
    size = len(state.prior)
    turn = np.eye(size)
    turn[1:, 1:] = np.linalg.cholesky(second)
    theta, spread = state.theta @ turn, turn.T @ state.spread @ turn
    number = np.bincount(data.block)
    base = np.stack([np.bincount(data.block, x) / number for x in theta.T], 1)
    away = theta - base[data.block]
    prior = (away.T @ away + spread.sum(0)) / data.columns
    turn = np.eye(size)
    turn[1:, 1:] = np.linalg.eigh(prior[1:, 1:])[1][:, ::-1]
    diagonal = np.maximum(np.diag(turn.T @ prior @ turn), 1e-9)
    return _State(theta @ turn, turn.T @ spread @ turn, state.noise, base @ turn, diagonal)


def _alive(state: _State, usual: float) -> _State:
    worth = usual * (state.prior + (state.base**2).max(0)) / float(state.noise.mean())
    kept = worth > DEAD
    kept[:2] = True
    theta, spread, noise, base, prior = state
    return _State(theta[:, kept], spread[:, kept][:, :, kept], noise, base[:, kept], prior[kept])
