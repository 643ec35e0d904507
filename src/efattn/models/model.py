"""A model is a sum of terms.

    past      log p(x, y)  =  sum_i  log p(x_i | x_<i)  +  log p(y_i | x_<=i, y_<i)            a joint likelihood
    others    log pl(x, y) =  sum_i  log p(x_i | x_-i)  +  log p(y_i | x_1..I, y_-i)           a pseudo-likelihood
    any       log p(x, y)  =  sum_k  log p(x_(k) | x_(<k)) +  log p(y_(k) | x_1..I, y_(<k))      in one order of many

Terms share no parameters: each is fitted, stopped and restored on its own.
"""

from collections.abc import Mapping
from typing import cast, final

import torch
from torch import Tensor, nn

from efattn.data.batch import Batch
from efattn.models.scoring import Conditionals, Scores


@final
class Model(nn.Module):
    """Terms by name, as "item" and "rating"; any text is a name, so the modules themselves are numbered."""

    def __init__(self, terms: Mapping[str, Conditionals]) -> None:
        super().__init__()
        self.terms = tuple(terms)
        self.parts = nn.ModuleList(terms.values())

    def __getitem__(self, name: str) -> Conditionals:
        return cast(Conditionals, self.parts[self.terms.index(name)])

    def log_prob(self, batch: Batch, draws: int | None = None) -> dict[str, Scores]:
        return {name: self[name].log_prob(batch, draws) for name in self.terms}

    def total(self, batch: Batch) -> Tensor:
        """log p of each group, (batch,): the sum over its scored targets and over terms."""
        return torch.stack([scores.values.sum(1) for scores in self.log_prob(batch).values()]).sum(0)
