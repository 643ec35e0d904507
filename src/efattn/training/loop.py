"""The training loop. A model is known to it only as log_prob(batch) -> values, which are scored, and their weights.

    maximise  sum w_i log p_i / sum w_i   over batches of like-long groups, one term after the other

Each term has its own seed, optimiser, early stopping and best weights. Several processes may share the batches
(`teams.py`): all then go through the same steps with the same weights, and the first writes and shows.
"""

import logging
import math
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from efattn.data import Batch, Groups, Roles
from efattn.errors import DataError, TrainingError, named, option
from efattn.models import Conditionals, Model, orders
from efattn.training import memory
from efattn.training.ahead import Batches
from efattn.training.checkpoint import Checkpoint, Progress
from efattn.training.extremes import blamed, broken_rows
from efattn.training.held_out import HeldOut
from efattn.training.ledger import Ledger
from efattn.training.optimiser import Adam, clip
from efattn.training.options import DROPS, Training, candidates, resolve_device
from efattn.training.replay import Replay
from efattn.training.teams import Lost, Team, seconds_since

log = logging.getLogger("efattn")
Record = dict[str, Any]  # one epoch of one term: term, epoch, epochs, train, validation, best, rate, seconds
Callback = Callable[[Record], object]
Tick = Callable[[str, int, int], object]  # term, step, steps
LONGER = 2  # times as many epochs as planned, at most, while the validation score still rises
EARLIEST, FAR = 0.2, 0.25  # of its epochs, when a term is first given up; nats a target that it would still lack
SOON = 9  # steps, after which a running mean has forgotten half of its first


@final
@dataclass
class Fitting:
    """What fits the terms of a model, one after the other, and can stop and go on anywhere."""

    model: Model
    data: Groups
    held: Groups | None
    options: Training
    seed: int = 0
    checkpoint: Checkpoint | None = None
    callbacks: Sequence[Callback] = ()
    tick: Tick | None = None
    history: list[Record] = field(default_factory=list)
    interrupted: bool = False
    label: Record = field(default_factory=dict)  # what each record says besides: which member of an ensemble it is
    roles: Roles | None = None  # what the columns are called, for words
    replays: Mapping[str, Replay] = field(default_factory=dict)  # by term, the steps of an earlier fit to go through
    team: Team | None = None  # the processes that share the batches, of which the first has the checkpoint
    bars: Mapping[str, float] = field(default_factory=dict)  # by term, how probable simple models find what is held out
    large: Container[str] = ()  # terms that want large batches, where the options leave it open

    def taken_back(self) -> bool:
        """Whether an earlier run finished it: then it is as it was."""
        saved = self.read()
        if saved is None or not saved[0].get("finished"):
            return False
        with self.usable():
            self.history[:] = saved[0]["history"]
            self.model.load_state_dict(_without(saved[1], "model."))
        self.model.eval()
        return True

    def read(self) -> tuple[dict[str, Any], dict[str, Tensor]] | None:
        """What the checkpoint holds, if there is one."""
        if self.team is not None:
            return self.team.told("the checkpoint", lambda: self.checkpoint and self.checkpoint.read())
        return None if self.checkpoint is None else self.checkpoint.read()

    def usable(self) -> AbstractContextManager[None]:
        return nullcontext() if self.checkpoint is None else self.checkpoint.usable()

    def run(self, resume: bool = False) -> None:
        if resume and self.taken_back():
            return
        device = resolve_device(self.options)
        if self.team is not None:
            device = self.team.device(device)
            self.team.share(self.model.state_dict())
        memory.check(self.model, self.data, self.options, device)
        self.model.to(device)
        if self.checkpoint is not None:
            self.checkpoint.prepare()
        saved = self.read() if resume else None
        names = list(self.model.terms)
        first, state = 0, None
        tensors: dict[str, Tensor] = {}
        if saved is not None:
            state, tensors = saved
            with self.usable():
                first, self.history[:] = names.index(state["term"]), state["history"]
                self.model.load_state_dict(_without(tensors, "model."))
                log.info("Resuming %s at epoch %d.", state["term"], state["progress"]["epoch"] + 1)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for number, name in enumerate(names[first:], first):
                torch.manual_seed(self.seed + number)
                mine = state if number == first else None
                with memory.told(self.data, self.options, device):
                    _Term(self, name, device).run(mine, tensors)
                if self.interrupted:
                    break
        self.model.to("cpu").eval()
        if self.checkpoint is not None and not self.interrupted:
            self.checkpoint.finish(self.history, self.model.state_dict())


class _Term:
    """One term in training."""

    def __init__(self, fitting: Fitting, name: str, device: torch.device) -> None:
        self.fitting, self.name, self.device = fitting, name, device
        self.term: Conditionals = fitting.model[name]
        self.options = options = fitting.options.settled(large=name in fitting.large)
        self.parameters = [p for p in self.term.parameters() if p.requires_grad]
        decay = options.weight_decay if options.optimiser == "adamw" else 0.0
        self.optimiser = Adam(self.parameters, options.rate, decay)
        held = fitting.held
        self.held = None if held is None else HeldOut(held, self.term, options.cells, device, fitting.team)
        self.best: dict[str, Tensor] = {}
        self.mean: list[Tensor] = []  # of the parameters over the last steps, if it is asked for
        self.at, self.ledger = Progress(), Ledger(device)
        self.train = Batches(fitting.data, self.term.context, device)
        batches = len(self.one_pass(0))
        self.passes = options.passes_for(batches)
        self.epochs, self.patience = options.epochs_for(batches), options.patience_for(batches)
        self.replay = fitting.replays.get(name)
        patience = self.patience or 0
        if self.replay is not None:
            self.epochs, self.patience = self.replay.epochs(batches * self.passes), None
        self.adaptive = options.decay == "plateau" and self.patience is not None and fitting.held is not None
        goes_on = self.adaptive and options.epochs is None and self.replay is None
        self.most = self.epochs * LONGER if goes_on else self.epochs
        if self.replay is not None:
            self.most = max(self.epochs * LONGER, self.epochs + patience)
        self.bar, self.earliest = fitting.bars.get(name), math.ceil(EARLIEST * self.epochs)
        self.limit = math.inf if options.seconds is None else options.seconds / len(fitting.model.terms)

    def run(self, state: dict[str, Any] | None, tensors: dict[str, Tensor]) -> None:
        if state is not None:
            with self.fitting.usable():
                self.restore(state, tensors)
        try:
            self.term.draw_candidates(candidates(self.term, self.fitting.data, self.options, self.fitting.seed))
            while not self.finished():
                self.epoch()
        except KeyboardInterrupt:
            self.fitting.interrupted = True
            kept = f"the best weights, of epoch {self.at.best_epoch}" if self.best else "the weights as they are"
            log.warning("Interrupted in epoch %d of the %s term: keeping %s.", self.at.epoch + 1, self.name, kept)
        except Lost as error:
            raise self.left_alone(error) from error
        finally:
            self.term.draw_candidates(None)
        if self.best:
            self.term.load_state_dict({k: v.to(self.device) for k, v in self.best.items()})
        elif self.mean:
            _copy(self.mean, self.parameters)

    def left_alone(self, error: Lost) -> Lost:
        """Its step was not taken: what is saved now is what the next one depends on."""
        kept = self.fitting.checkpoint
        if kept is not None:
            self.at.total, self.at.weight = self.ledger.sums()
            self.save()
        return error.advised(None if kept is None else str(kept.folder), self.at.epoch + 1)

    def restore(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.at = Progress(**state["progress"])
        self.best = {k: x.to(self.device, copy=True) for k, x in _without(tensors, "best.").items()}
        self.mean = [x.to(self.device) for _, x in sorted(_without(tensors, "mean.").items())]
        self.optimiser.restore(tensors)
        torch.set_rng_state(tensors["random"])
        if self.device.type == "cuda" and "random.cuda" in tensors:
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)

    def finished(self) -> bool:
        """Whether it gets no better, its time is up or all epochs are over; more are planned where it still does."""
        if (self.stale() and self.at.batch == 0) or (self.at.epoch and self.at.spent >= self.limit):
            return True
        if self.mine[-1:] and self.mine[-1].get("given_up"):
            return True
        if self.at.epoch >= self.epochs and self.at.best is not None:
            self.epochs = min(2 * self.epochs, self.most)
        if self.replay is not None and self.epochs <= self.at.epoch < self.most and self.behind(self.replay.reached):
            self.epochs += 1
        return self.at.epoch >= self.epochs

    def behind(self, reached: float) -> bool:
        """Whether the rows of the last epoch were less likely."""
        return bool(self.mine) and self.mine[-1]["train"] < reached

    @property
    def mine(self) -> list[Record]:
        """The records of this term."""
        return [record for record in self.fitting.history if record["term"] == self.name]

    def out_of_reach(self) -> bool:
        """Whether the bar would still be far off after all epochs, if every doubling of epochs brings what the last one
        brought."""
        epoch, best = self.at.epoch, self.at.best
        if self.bar is None or best is None or epoch < self.earliest:
            return False
        before = max((record["validation"] for record in self.mine[: epoch // 2]), default=-math.inf)
        return best + (best - before) * math.log2(max(self.epochs / epoch, 1.0)) < self.bar - FAR

    def stale(self) -> bool:
        """No better score for too long."""
        at = self.at
        last = max(at.best_epoch, at.since)
        return self.patience is not None and at.best is not None and at.epoch - last >= self.patience

    def lower_rate(self) -> None:
        """Go on from the best weights with a lower rate and a fresh memory of gradients."""
        self.at.drops, self.at.since = self.at.drops + 1, self.at.epoch
        self.term.load_state_dict(self.best)
        self.forget()

    def forget(self) -> None:
        """What was learnt of gradients, and the running mean."""
        self.optimiser.forget()
        self.mean, self.at.averaged = [], 0

    @torch.no_grad()
    def average(self) -> None:
        """Take the weights into their running mean, which forgets what came before the first steps soon."""
        self.at.averaged += 1
        if not self.mean:
            self.mean = [p.detach().clone() for p in self.parameters]
        share = max(1 - self.options.decay_of_mean, SOON / (SOON + self.at.averaged))
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.parameters], share)

    @contextmanager
    def at_the_mean(self) -> Iterator[None]:
        """With the mean of the weights in their place, where there is one."""
        own = [p.detach().clone() for p in self.parameters] if self.mean else []
        _copy(self.mean, self.parameters)
        try:
            yield
        finally:
            _copy(own, self.parameters)

    def keep(self, score: float | None, epoch: int = 0) -> None:
        """The weights as the best ones, if they are."""
        if score is not None and math.isfinite(score) and (self.at.best is None or score > self.at.best):
            self.at.best, self.at.best_epoch = score, epoch
            now = self.term.state_dict()
            self.best = self.best or {k: torch.empty_like(v) for k, v in now.items()}
            torch._foreach_copy_([self.best[k] for k in now], list(now.values()))

    def one_pass(self, number: int) -> list[Any]:
        return self.fitting.data.plan(self.options.cells, shuffle=self.fitting.seed, epoch=number)

    def epoch(self) -> None:
        at, first = self.at, self.at.epoch * self.passes
        plan = [pieces for number in range(first, first + self.passes) for pieces in self.one_pass(number)]
        start = time.monotonic() - at.seconds
        if not self.term.training:
            self.term.train()
        self.ledger.open(at.total, at.weight)
        mine = plan if self.fitting.team is None else [self.fitting.team.part(pieces) for pieces in plan]
        with closing(self.train.of(mine[at.batch :])) as batches:
            for number, one in enumerate(batches, at.batch):
                step, total = at.epoch * len(plan) + number, self.epochs * len(plan)
                self.step(one, self.rate(min(step, total - 1), total), number)
                if (number + 1) % self.ledger.every == 0:
                    self.look(plan)
                at.batch = number + 1
                at.seconds = seconds_since(start, self.fitting.team if self.limit < math.inf else None)
                if self.fitting.tick is not None:
                    self.fitting.tick(self.name, step + 1, total)
                if at.spent + at.seconds >= self.limit:
                    break
                if self.fitting.checkpoint is not None and self.fitting.checkpoint.due() and number + 1 < len(plan):
                    self.look(plan)
                    self.save()
        self.look(plan)
        self.close_epoch(start)

    def rate(self, step: int, total: int) -> float:
        if self.replay is not None:
            warm = min((step + 1) / self.options.warm_steps(total), 1.0)
            return self.replay.rate(step, total) * warm
        return self.options.rate_at(step, total, self.at.drops if self.adaptive else None)

    def step(self, batch: Batch, rate: float, number: int) -> None:
        """Nothing in it waits for a device other than the CPU, unless several processes share the batch."""
        self.optimiser.rate = self.at.rate = rate
        team = self.fitting.team
        for p in self.parameters:
            p.grad = None
        if team is not None:
            team.seed(self.fitting.seed, self.at.epoch, number)
        if self.term.holes is not None:
            batch = self.term.holes(batch)
        if self.term.context == "any":
            batch = orders.in_training(batch)
        mine = total, weight = self.sums(batch)
        if team is not None:
            total, weight = team.sum(*mine, device=self.device)
        here = self.device.type == "cpu" or team is not None
        if here and not weight > 0:
            return
        divisor = weight if here else weight.clamp_min(torch.finfo(weight.dtype).tiny)
        loss = -mine[0] / divisor.to(mine[0].dtype)
        self.ledger.note(loss if team is None else -total / divisor, number)
        if here and self.ledger.broken() is not None:
            return
        if loss.requires_grad:  # a process may have no group of a batch
            loss.backward()
        if team is not None:
            team.add_gradients(self.parameters)
        if self.options.clip is not None:
            clip(self.parameters, self.options.clip)
        self.optimiser.step(None if here else self.ledger.stopped(weight))
        if self.options.decay_of_mean:
            self.average()
        self.ledger.add(total, weight)

    def look(self, plan: list[Any]) -> None:
        """Whether all losses so far are numbers, and what they sum to. This waits for the device."""
        number = self.ledger.broken()
        if number is not None:
            raise self.not_finite(self.fitting.data.batch(plan[number], self.term.context), number)
        self.at.total, self.at.weight = self.ledger.sums()

    def sums(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the weighted log-probabilities, and of the weights."""
        if not len(batch.exists):
            return torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        with torch.autocast("cuda", torch.bfloat16) if self.mixed() else nullcontext():
            scores = self.term.log_prob(batch.to(self.device), self.options.most_targets)
        return (scores.values * scores.weight).sum(), scores.weights()

    def mixed(self) -> bool:
        return self.options.precision == "mixed" and self.device.type == "cuda"

    def not_finite(self, batch: Batch, number: int) -> TrainingError:
        """Rows that no rate could cope with, if there are any; else those that the network cannot cope with."""
        what = f"The loss of the {self.name} term turned into NaN or infinity in epoch {self.at.epoch + 1}"
        if wrong := blamed(self.term, self.fitting.data, self.fitting.roles, what):
            return wrong
        worst = broken_rows(self.term, batch, self.device)
        return TrainingError(
            f"{what}, batch {number + 1} (rows {', '.join(map(str, worst))}, ...). Try a lower rate, "
            f"{self.advised_rate()}, "
            "or look for extreme values in these rows.",
            option="rate",
        )

    def check_weights(self) -> None:
        """The last step of an epoch may ruin what no later loss would tell of."""
        weights = [p for p in (*self.parameters, *self.mean) if p.numel()]
        if bool(torch.stack(torch._foreach_norm(weights, math.inf)).isfinite().all()):
            return
        what = f"The weights of the {self.name} term turned into NaN or infinity in epoch {self.at.epoch + 1}"
        raise blamed(self.term, self.fitting.data, self.fitting.roles, what) or TrainingError(
            f"{what}. Try a lower rate, {self.advised_rate()}, or look for extreme values.", option="rate"
        )

    def advised_rate(self) -> str:
        return option("rate", float(f"{self.options.rate / 10:g}"), of="Training")

    def close_epoch(self, start: float) -> None:
        at, held = self.at, self.fitting.held
        if not at.weight > 0:
            raise DataError(
                f"There is nothing to fit the {self.name} term to: no training row of a positive weight is a target "
                f"with a known item or value. Check {named('target')} and {named('weight')}, and what is missing.",
                option="target",
            )
        self.check_weights()
        train = at.total / at.weight
        with self.at_the_mean():
            validation = None if self.held is None else self.held.score()
            self.keep(validation, at.epoch + 1)
        if validation is not None and not math.isfinite(validation):
            what = f"The validation log-likelihood of the {self.name} term is {validation} after epoch {at.epoch + 1}"
            raise (None if held is None else blamed(self.term, held, self.fitting.roles, what)) or TrainingError(
                f"{what}. Try a lower rate, {self.advised_rate()}, and look for extreme values held out.",
                option="rate",
            )
        record: Record = {"term": self.name, "epoch": at.epoch + 1, "epochs": self.epochs, "train": train}
        record |= {
            "validation": validation,
            "best": at.best,
            "rate": at.rate,
            "seconds": seconds_since(start, self.fitting.team),
        }
        record |= self.fitting.label
        self.fitting.history.append(record)
        at.spent += record["seconds"]
        at.epoch, at.batch, at.total, at.weight, at.seconds = at.epoch + 1, 0, 0.0, 0.0, 0.0
        if self.out_of_reach():
            record["given_up"] = True
        if self.adaptive and self.stale() and at.drops < DROPS:
            self.lower_rate()
        if self.fitting.checkpoint is not None and self.fitting.checkpoint.due():
            self.save()
        for callback in self.fitting.callbacks:
            callback(record)

    def save(self) -> None:
        assert self.fitting.checkpoint is not None
        tensors = {f"model.{k}": v for k, v in self.fitting.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()} | self.optimiser.tensors()
        tensors |= {f"mean.{number:05d}": x for number, x in enumerate(self.mean)}
        tensors["random"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        state = {"term": self.name, "progress": self.at.to_json(), "history": self.fitting.history}
        self.fitting.checkpoint.write(state, tensors)


@torch.no_grad()
def _copy(source: Sequence[Tensor], target: Sequence[Tensor]) -> None:
    for x, p in zip(source, target, strict=False):  # nothing, or all
        p.copy_(x)


def _without(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): x for name, x in tensors.items() if name.startswith(prefix)}
