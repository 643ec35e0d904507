"""Regression trees as flat tables: grown by scikit-learn, asked with nothing but arrays.

feature (..., node)      which number a node looks at, -1 in a leaf      below (..., node, 2)   its children
threshold (..., node)    beyond which it goes to the second              leaf (..., node, 2)    mean, mean of squares
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

LEAVES = 48  # of a tree, at most
NODES = 2 * LEAVES - 1
THIRD = 1 / 3  # of all features, which each split looks at: as forests of regressions do


def empty(*shape: int) -> dict[str, Tensor]:
    """Of so many trees, each a leaf that says nothing."""
    return {
        "feature": torch.full((*shape, NODES), -1, dtype=torch.int16),
        "below": torch.zeros(*shape, NODES, 2, dtype=torch.int16),
        "threshold": torch.zeros(*shape, NODES, dtype=torch.float32),
        "leaf": torch.zeros(*shape, NODES, 2, dtype=torch.float32),
    }


def grown(x: np.ndarray, y: np.ndarray, least: int, seed: int, weight: np.ndarray | None = None) -> Any:
    """A tree of scikit-learn's. x: single precision, (row, feature); least: rows of a leaf."""
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(max_features=THIRD, min_samples_leaf=least, max_leaf_nodes=LEAVES, random_state=seed)
    return tree.fit(x, y, weight, check_input=False).tree_  # the check takes longer than a small tree


def table(tree: Any) -> dict[str, np.ndarray]:
    """A grown tree by node."""
    mean = tree.value[:, 0, 0]
    return {
        "feature": tree.feature.clip(-1),
        "below": np.stack([tree.children_left, tree.children_right], -1),
        "threshold": tree.threshold,
        "leaf": np.stack([mean, mean**2 + tree.impurity], -1),
    }


def said(tables: Mapping[str, Tensor], x: Tensor, first: Tensor) -> Tensor:
    """(row, 2): mean and mean of squares over a row's trees. x: (row, feature); first: (row, tree), numbers of trees
    among all."""
    feature, threshold = tables["feature"].flatten(), tables["threshold"].flatten()
    children, leaf = tables["below"].reshape(-1, 2), tables["leaf"].reshape(-1, 2)
    root, x = first * NODES, x.float()
    node = torch.zeros_like(root)
    for _ in range(LEAVES):
        column = feature[root + node].long()
        if not bool((column >= 0).any()):
            break
        right = x.gather(1, column.clamp_min(0)) > threshold[root + node]
        node = torch.where(column < 0, node, children[root + node, right.long()].long())
    return leaf[root + node].double().mean(1)


def within(said: Any, share: Any) -> Any:
    """The spread of what is left inside leaves, of which a share of their means is taken."""
    mean, squares = said[..., 0], said[..., 1]
    least = 1e-6 * squares + 1e-12
    inside = squares - (2 * share - share**2) * mean**2
    return inside.clamp_min(least.min()) if isinstance(inside, Tensor) else np.maximum(inside, least)
