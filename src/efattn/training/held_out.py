"""How probable a term finds groups that it is not fitted to: the mean over targets, by sums in double precision."""

from collections.abc import Iterable, Sequence
from typing import Any, final

import torch

from efattn.data import Batch, Groups
from efattn.models import Conditionals, orders
from efattn.training.ahead import Batches
from efattn.training.ledger import Ledger
from efattn.training.teams import Team
from efattn.training.threads import SMALL

FLATTER, FLATTEST, SHARPEST = 0.87, 0.05, 1.001  # steps of sharpness, and how far they go


@final
class HeldOut:
    """Groups that are scored again and again; batches of few rows are kept. team: who shares them."""

    def __init__(
        self, groups: Groups, term: Conditionals, tokens: int, device: torch.device, team: Team | None = None
    ) -> None:
        self.groups, self.term, self.tokens, self.device = groups, term, tokens, device
        self.team = None if term.context == "any" else team  # there, an order depends on the batches before
        self.built = Batches(groups, term.context, device)
        self.batches: list[Batch] | None = None

    def score(self) -> float | None:
        """Per scored target, weighted; None where nothing is scored. A term that can be too sure of itself is made as
        sure as these groups ask for."""
        if self.term.sharpness is None:
            return self._score()
        every = max(self.groups.count // SMALL, 1)
        found = self._adjusted(self.term.sharpness, every)
        return found if every == 1 else self._score()

    def _adjusted(self, sharpness: torch.Tensor, every: int) -> float | None:
        """The score when it is as sure as one batch of so many asks for: it is one number, and a try takes as long as
        a score."""
        found = self._score(every)
        if found is None:
            return None
        for factor in (FLATTER, 1 / FLATTER):
            now, start = float(sharpness), found
            while FLATTEST <= now * factor <= SHARPEST:
                sharpness.fill_(now * factor)
                other = self._score(every)
                if other is None or not other > found:
                    break
                now, found = now * factor, other
            sharpness.fill_(now)
            if found > start:
                break
        return found

    def _score(self, every: int = 1) -> float | None:
        """every: of how many batches one is looked at."""
        batches: Iterable[Batch] | None = self.batches
        if batches is None:
            plan: Sequence[Any] = self.groups.plan(self.tokens)[::every]
            plan = plan if self.team is None else self.team.part(plan)
            batches = self.built.of(plan)
            if self.term.context == "any":
                batches = orders.fixed(batches)
            if self.groups.count < SMALL:
                batches = self.batches = [x.to(self.device) for x in batches]
        sums = log_prob_sums(self.term, batches, self.device)
        return _mean(*sums) if self.team is None else _mean(*self.team.sum(*sums).tolist())


def mean_log_prob(term: Conditionals, batches: Iterable[Batch], device: torch.device | str = "cpu") -> float | None:
    """Per scored target, weighted; None where nothing is scored."""
    return _mean(*log_prob_sums(term, batches, device))


@torch.no_grad()
def log_prob_sums(term: Conditionals, batches: Iterable[Batch], device: torch.device | str) -> tuple[float, float]:
    """Of weighted log-probabilities, and of weights."""
    training = term.training
    term.eval()
    ledger = Ledger(torch.device(device))
    for batch in batches:
        scores = term.log_prob(batch.to(device))
        ledger.add((scores.values.double() * scores.weight).sum(), (scores.weight * scores.scored).sum())
    term.train(training)
    return ledger.sums()


def _mean(total: float, weight: float) -> float | None:
    return total / weight if weight else None
