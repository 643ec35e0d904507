"""Aims of speed and memory, each a bound on one figure of a bench (figures.py), with what was tried to reach it.

Whether one is met is never written here: the page looks at the results.
"""

from typing import NamedTuple


class Aim(NamedTuple):
    """figure: of the bench, by its name; most, least: the bound; tried: what was done, and what did not help."""

    about: str
    bench: str
    figure: str
    most: float | None = None
    least: float | None = None
    tried: str = ""

    @property
    def words(self) -> str:
        return f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"

    def met(self, value: float) -> bool:
        return value <= self.most if self.most is not None else self.least is None or value >= self.least


GPU_FIT = (
    "Losses, sums and the first loss that is no number stay on the device for fifty steps or an epoch; batches are "
    "built in a thread and sent from pinned memory; nothing in a step depends on numbers of the device."
)
AIMS = (
    Aim(
        "a fit beside busy programs", "busy", "default: times its fair share", most=1.5,
        tried="Small tables take one thread; threads that wait spin for 500 turns and then sleep.",
    ),
    Aim("loss of large catalogues", "catalogue", "100,000 items: difference of the loss", most=1e-5),
    Aim("its gradients", "catalogue", "100,000 items: difference of gradients", most=1e-5),
    Aim("its memory", "catalogue", "100,000 items: times less peak memory", least=12),
    Aim("its time", "catalogue", "100,000 items: time, of that of whole arrays", most=1.6),
    Aim(
        "memory to train on 100 million rows", "stream", "100 million rows, of 10 million: times the memory to train",
        most=1.2, tried="What is left grows with groups, not rows: offsets, and the order of an epoch.",
    ),
    Aim(
        "memory to read them", "stream", "100 million rows, of 10 million: times the memory to read", most=1.2,
    ),
    Aim("a step on a group of 5,000 rows", "long", "5,000 rows, others, 2 layers: MiB to fit", most=1024),
    Aim("its scores", "long", "5,000 rows, others, 2 layers: MiB to score", most=1024),
    Aim(
        "12,000 items against whole arrays", "catalogue", "12,000 items: time, of that of whole arrays", most=1 / 3,
        tried="Only scored positions reach the head; blocks of 2 MB, exponentials to base 2, items that are ruled out "
        "named by pairs. The products, which both forms have, are most of what is left.",
    ),
    Aim(
        "fit of 100,000 rows on a GPU", "gpu", "fit, values, 100,000 rows: times as fast as two cores", least=20,
        tried=GPU_FIT,
    ),
    Aim("fit of 480,000 rows on a GPU", "gpu", "fit, values, 480,000 rows: times as fast as two cores", least=20),
    Aim(
        "items and times on a GPU", "gpu", "fit, items, past, gaps, 480,000 rows: times as fast as two cores", least=20,
    ),
    Aim(
        "what gaps of time cost on a GPU", "gpu", "gaps: times the cost of none", most=1.5,
        tried="330 ms a step against 42 before: each class's sum was one atomic addition after the other. Now a "
        "product with indicators of the classes.",
    ),
    Aim(
        "waiting for the GPU, in an epoch", "gpu", "values, gaps: waits in an epoch", most=10,
        tried="Counted by CUDA itself. What is left is the end of an epoch: sums, and whether weights are numbers.",
    ),
    Aim("score on a GPU", "gpu", "score: times as fast as two cores", least=1),
    Aim("predict on a GPU", "gpu", "predict: times as fast as two cores", least=1),
    Aim("recommend on a GPU", "gpu", "recommend: times as fast as two cores", least=1),
    Aim(
        "five members on a GPU", "gpu", "5 members: times the time of one", most=2,
        tried="Processes side by side on one GPU. One batched pass (`torch.func`) was not built: members see batches "
        "of their own in an order of their own and stop one by one, and exact conditionals are functions with a "
        "backward pass of their own that work in place, which `vmap` does not take.",
    ),
    Aim(
        "Instacart, others, against masked copies", "baskets", "8,192 tokens: times as fast as masked copies", least=15,
    ),
    Aim(
        "the same with default batches", "baskets", "1,024 tokens: times as fast as masked copies", least=15,
    ),
    Aim(
        "exact conditionals of 50 rows, others", "conditionals", "others, length 50: times one ordinary pass", most=3.5,
    ),
    Aim(
        "exact conditionals of 50 rows, past", "conditionals", "past, length 50: times one ordinary pass", most=1.6,
    ),
)  # fmt: skip
