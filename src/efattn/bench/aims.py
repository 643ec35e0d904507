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
    "Losses, sums and the first loss that is no number stay on the device for fifty steps or an epoch; nothing in a "
    "step depends on numbers of the device; rows are there, and batches are gathered there. A thread that built them "
    "ahead took turns with the one that launches kernels (54 ms a step, now 15). The GPU is at work 4 ms of a step, "
    "the rest is launching 600 kernels from Python; with 1,024 tokens a step is 9 ms, of which 1 is work. Since this "
    "was measured, copies are built up to 25 million numbers (8.6 ms against 10). Graphs of kernels, which would help "
    "most, ask for shapes that stay the same: not built."
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
        tried="Only scored positions reach the head; blocks of 2 MB, exponentials to base 2, items that are ruled "
        "out named by pairs. The products, which both forms have, are most of what is left.",
    ),
    Aim(
        "fit of 100,000 rows on a GPU", "gpu", "fit, values, 100,000 rows: times as fast as two cores", least=20,
        tried=GPU_FIT,
    ),
    Aim(
        "the same with default batches of 1,024 tokens", "gpu",
        "fit, values, 1,024 tokens, 100,000 rows: times as fast as two cores", least=20,
        tried="A larger `tokens` is what helps: steps that are 16 times as large take 1.7 times as long.",
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
    Aim(
        "a list of ten for one history", "recommend", "whole, 50 rows, 12,000 items: p50 in ms", most=5,
        tried="Names of few rows are numbered without joins, and what is whole is not filtered: 3.5 ms against 4.6. "
        "What is left is the overhead of many small calls.",
    ),
    Aim("score on a GPU", "gpu", "score: times as fast as two cores", least=1),
    Aim("predict on a GPU", "gpu", "predict: times as fast as two cores", least=1),
    Aim("recommend on a GPU", "gpu", "recommend: times as fast as two cores", least=1),
    Aim(
        "five members on a GPU", "gpu", "5 members: times the time of one", most=2,
        tried="Processes side by side on one GPU (`jobs=5`). One batched pass (`torch.func`) was not built: members "
        "see batches of their own in an order of their own and stop one by one, and exact conditionals are functions "
        "with a backward pass of their own that work in place, which `vmap` does not take.",
    ),
    Aim(
        "Instacart, others, against masked copies", "baskets", "8,192 tokens: times as fast as masked copies", least=15,
        tried="A step is 4.6 ordinary passes, half of it elementwise work on arrays of heads, targets and rows; its "
        "products are of 16 by 16 matrices, which reach a tenth of the peak. Building the copies instead takes "
        "three times as long (273 ms against 83 a step).",
    ),
    Aim(
        "the same with default batches", "baskets", "1,024 tokens: times as fast as masked copies", least=15,
    ),
    Aim(
        "exact conditionals of 50 rows, others", "conditionals", "others, length 50: times one ordinary pass", most=3.5,
        tried="Masks are kept between layers, and sums of the gradient take one pass over their arrays each: a "
        "twelfth less. Sums of scores one head at a time: no gain. What is left is elementwise, twenty passes over "
        "arrays that fit into the cache; less would need kernels of our own.",
    ),
    Aim(
        "exact conditionals of 50 rows, past", "conditionals", "past, length 50: times one ordinary pass", most=1.6,
        tried="Counting operations alone it is 1.5 (attention) to 1.8 (projections): content and masked rows pass "
        "the first layer, masked rows the second. A target's own slot joined to fused attention by its log-sum-exp "
        "would save about a tenth, by functions of torch that are not public: left out. Softmax written out: no "
        "gain below 100 rows.",
    ),
    Aim("the same fit by two processes", "processes", "two processes: difference of the score", most=1e-3),
)  # fmt: skip
