"""What family="auto" takes a column for, as a statistician would: by what values look like within items, never because
they are whole; and groups that are left out where several are plausible."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from efattn import DataError, SimpleModel, families, simple
from efattn.data import Roles
from efattn.estimators import deciding
from efattn.estimators.families import automatic, choose
from efattn.estimators.preparing import prepare

DRAW = np.random.default_rng(1)
ITEM = np.tile(np.arange(6), 100)
LEVEL = np.array([0.0, 0.4, 0.8, 1.2, 1.6, 2.0])[ITEM]


def normal(mean, sd):
    return DRAW.normal(mean, sd, 600)


COLUMNS = {  # (600 values of 6 items in turn, the names that will do)
    "temperatures in whole degrees F": ((60 + 5 * LEVEL + normal(0, 9)).round(), "gaussian"),
    "temperatures in whole degrees C, none below 0": ((20 + LEVEL + normal(0, 5)).round().clip(0), "gaussian"),
    "years": (DRAW.integers(1950, 2021, 600), "gaussian"),
    "scores up to 100": ((72 + normal(0, 12)).round().clip(0, 100), "gaussian"),
    "incomes in whole dollars": (np.exp(10 + 0.2 * LEVEL + normal(0, 0.7)).round(), "log_normal"),
    "incomes in hundreds, many without": (
        np.where(DRAW.random(600) < 0.2, 0, (np.exp(10 + normal(0, 0.7)) / 100).round() * 100),
        "zero_or",
    ),
    "ages": (DRAW.integers(18, 91, 600), "gaussian gamma"),
    "goals": (DRAW.poisson(1.4, 600), "poisson"),
    "accidents that vary": (DRAW.negative_binomial(0.7, 0.1, 600), "negative_binomial"),
    "rare events": (DRAW.poisson(0.4, 600), "poisson ordinal"),
    "children": (DRAW.poisson(1.8, 600).clip(0, 7), "poisson"),
    "visits, thousands a day": (DRAW.poisson(4000, 600), "gaussian poisson"),
    "answers from 1 to 5": (DRAW.choice(5, 600, p=[0.1, 0.2, 0.3, 0.25, 0.15]) + 1, "ordinal"),
    "answers from 1 to 7": (DRAW.integers(1, 8, 600), "ordinal"),
    "answers from -3 to 3": (DRAW.integers(-3, 4, 600), "ordinal"),
    "marks from 0 to 10": (DRAW.integers(0, 11, 600), "ordinal"),
    "whole degrees in the tropics": ((24 + normal(0, 1.6)).round().clip(20, 29), "gaussian"),
    "yes or no": (DRAW.integers(0, 2, 600), "bernoulli"),
    "shares": (DRAW.beta(2, 3, 600), "beta"),
    "heights": (170 + normal(0, 8), "gaussian"),
    "returns": (DRAW.standard_t(3, 600), "gaussian"),  # a t law has to win on groups left out
    "rain, mostly none": (np.where(DRAW.random(600) < 0.6, 0, DRAW.gamma(1, 5, 600)), "zero_or"),
    "waiting times": (DRAW.gamma(1.5, 2, 600), "gamma"),
    "firms of very different size": (np.exp(4 * LEVEL) * (10 + normal(0, 1)), "gaussian"),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_taken_for_what_it_is(column):
    y, names = COLUMNS[column]
    choice = automatic(np.asarray(y, float), "y", ITEM)
    assert choice.family.name in names.split()
    assert choice.why


def test_zeros_among_real_numbers_are_told():
    y, _ = COLUMNS["rain, mostly none"]
    assert "exactly 0" in automatic(y, "y", ITEM).why


def test_a_count_beyond_those_seen_is_no_error():
    y = np.asarray(COLUMNS["goals"][0], float)
    automatic(y, "y", ITEM).family.check(np.append(y, 19.0))


MELTED = {
    "one of each": (
        (normal(60, 9), DRAW.poisson(3, 600), DRAW.integers(0, 2, 600), DRAW.integers(1, 6, 600)),
        ("gaussian", "poisson", "bernoulli", "ordinal"),
    ),
    "temperatures and incomes": ((normal(-5, 9), np.exp(normal(10, 1))), None),  # both are measures
    "rare counts among counts": ((DRAW.poisson(0.05, 600), DRAW.poisson(6, 600), DRAW.poisson(1, 600)), None),
    "answers, one hardly ever beyond 1": ((DRAW.integers(0, 5, 60), DRAW.integers(0, 2, 60)), None),
    "the tropics and the poles": ((normal(26, 1).round(), normal(0, 12).round()), None),
    "an item seen twice": (
        (normal(60, 9), DRAW.integers(0, 2, 600), np.array([0.5, 0.7])),
        ("gaussian", "bernoulli", "gaussian"),
    ),
}


@pytest.mark.parametrize("case", MELTED)
def test_items_have_families_of_their_own_where_they_differ_in_kind(case):
    columns, expected = MELTED[case]
    y = np.concatenate([np.asarray(x, float) for x in columns])
    item = np.repeat(np.arange(len(columns)), [len(x) for x in columns])
    family = automatic(y, "y", item).family
    assert isinstance(family, families.PerItem) == (expected is not None)
    if expected is not None:
        assert tuple(family.parts[k].name for k in family.kinds) == expected
        family.check(y, item=item)


def test_an_exposure_makes_whole_numbers_counts():
    y = DRAW.poisson(300, 100).astype(float)
    (choice,) = choose(y[:, None], ("y",), "auto", exposure=np.ones(len(y))).parts
    assert choice.family.exposures == (0,)
    assert {one.name for one in choice.rivals} == {"poisson", "negative_binomial"}


def test_a_family_for_each_item_can_be_asked_for():
    y = np.concatenate([normal(60, 9), np.exp(normal(10, 1))])
    (choice,) = choose(y[:, None], ("y",), "per_item", np.repeat([0, 1], 600)).parts
    assert [choice.family.parts[k].name for k in choice.family.kinds] == ["gaussian", "log_normal"]
    with pytest.raises(DataError, match="there is no item column"):
        choose(y[:, None], ("y",), choice.family)


def decided(y, groups=60, items=4):
    table = pl.DataFrame(
        {"g": np.repeat(np.arange(groups), items), "i": np.tile(np.arange(items), groups), "y": y.ravel()}
    )
    options = {"terms": "value", "support": "auto", "standardise": "auto", "validation": 0.2, "seed": 0, "sizes": {}}
    decide = lambda draft: deciding.decided(draft, "others", "auto", 0)  # noqa: E731
    return prepare(table, Roles("g", "i", "y"), family="auto", decide=decide, **options)


def test_groups_that_are_left_out_decide_between_rivals(monkeypatch):
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    draw = np.random.default_rng(0)
    level, shape = draw.normal(size=(200, 1)), (200, 2)
    cases = {
        "student_t": level / 5 + draw.standard_t(2.2, shape),
        "negative_binomial": draw.poisson(np.exp(level) * draw.gamma(0.5, 4, shape)).astype(float),
    }
    for name, y in cases.items():
        (choice,) = decided(y, 200, 2).choices
        assert choice.family.name == name
        assert "groups left out have" in choice.why


def test_how_heavy_tails_are_is_asked_of_what_the_context_leaves(monkeypatch):
    """Items in places of their own: the column as a whole has hardly any degrees of freedom."""
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    draw, places = np.random.default_rng(1), np.array([0.0, 3.0, 500.0, -80.0])
    y = places + draw.normal(size=(120, 1)) + draw.standard_t(3.2, (120, 4))
    (choice,) = decided(y, 120).choices
    assert choice.family == families.StudentT(degrees=3.0)


def test_heavy_tails_made_from_moments_are_as_wide_as_these_say():
    draw, places = np.random.default_rng(1), np.array([0.0, 3.0, 500.0, -80.0])
    y = places + draw.normal(size=(120, 1)) + draw.normal(size=(120, 4))
    frame = pl.DataFrame({"g": np.repeat(np.arange(120), 4), "i": np.tile(np.arange(4), 120), "y": y.ravel()})
    scores = [
        SimpleModel(simple.GaussianConditional(), family=family).fit(frame, group="g", item="i", value="y").score(frame)
        for family in ("gaussian", "student_t")
    ]
    assert scores[1] > scores[0] - 0.2


def test_trees_judge_families_where_groups_are_like_rows(monkeypatch):
    """No line knows how the four go together, and what it leaves has another shape than the noise, which is in per
    cent."""
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    monkeypatch.setattr(deciding, "SPLITS", 1)
    draw = np.random.default_rng(2)
    z = draw.uniform(-1, 1, 250)
    y = np.stack([0.05 + z**2, 1.02 + np.sin(5 * z), 0.05 + abs(z), 1.02 + np.cos(4 * z + 1)], 1)
    names = list[str]()
    for judged in (True, False):
        monkeypatch.setattr(deciding.companions, "tabular", lambda train, items, judged=judged: judged)
        (choice,) = decided(y * np.exp(0.05 * draw.normal(size=y.shape)), *y.shape).choices
        names.append(choice.family.name)
    assert names[0] == "log_normal" != names[1]


def test_what_the_values_are_is_told_whole_whatever_decides(monkeypatch):
    monkeypatch.setattr(deciding, "SPLITS", 1)
    honest = deciding.decided

    def renamed(draft, *how):
        return honest(replace(draft, choices=(draft.choices[0]._replace(values="gain, in $, net"),)), *how)

    monkeypatch.setattr(deciding, "decided", renamed)
    (choice,) = decided(np.random.default_rng(0).normal(size=(20, 2)), 20, 2).choices
    assert choice.why.startswith("gain, in $, net; groups left out have")


def test_a_family_that_failed_once_is_no_rival(monkeypatch):
    honest, calls = deciding._by_group, []

    def broken(model, held, shifts):
        calls.append(type(model.family.parts[0]).__name__)
        if calls.count(calls[-1]) == 2 and calls[-1] == "StudentT":
            raise MemoryError
        return honest(model, held, shifts)

    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    monkeypatch.setattr(deciding, "_by_group", broken)
    (choice,) = decided(np.random.default_rng(0).standard_t(2.2, (60, 4))).choices
    judges = calls.count("Gaussian") // deciding.SPLITS
    assert calls.count("StudentT") == 2 + (deciding.SPLITS - 1) * judges
    assert choice.family.name != "student_t"


def test_items_of_very_different_spread_are_seen_in_units_of_their_own(monkeypatch):
    scale = np.array([0.01, 1.0, 50.0, 4000.0])
    y = scale * (3 + DRAW.normal(size=(60, 1)) + DRAW.normal(size=(60, 4)))
    monkeypatch.setattr(deciding, "SPLITS", 0)
    blueprint = decided(y)
    assert blueprint.family.parts[0].name == "gaussian"
    assert blueprint.schema.standardiser.methods == ("item_spread",)
    seen = blueprint.train.value[:, 0]
    assert [seen[blueprint.train.item == k].std() for k in range(4)] == pytest.approx([1.0] * 4, abs=0.05)
    alike = decided(3 + DRAW.normal(size=(60, 1)) + DRAW.normal(size=(60, 4)))
    assert alike.schema.standardiser.methods == ("item",)


def test_more_items_than_groups_say_nothing_against_a_normal_law():
    """A map from item to item would fit so few groups to the last digit, and only heavy tails would survive that."""
    rng, shape = np.random.default_rng(0), (16, 60)
    y = 3 * rng.normal(size=(16, 1)) + rng.normal(size=60) + 0.5 * rng.normal(size=shape)
    (choice,) = decided(y, *shape).choices
    assert choice.family.name == "gaussian"


def test_zeros_of_their_own_are_found_by_groups_that_are_left_out(monkeypatch):
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    draw, shape = np.random.default_rng(3), (120, 3)
    level = draw.normal(size=(120, 1))
    wet = draw.random(shape) < 1 / (1 + np.exp(-2 * level))
    (rain,) = decided(np.where(wet, draw.gamma(2.0, np.exp(1 + level), shape), 0.0), *shape).choices
    assert rain.family.name == "zero_or"
    assert "zero_or(gamma)" in rain.why
    fish = np.where(draw.random(shape) < 0.5, draw.poisson(np.exp(2.5 + 0.3 * level), shape), 0)
    (count,) = decided(fish.astype(float), *shape).choices
    assert count.family.name == "zero_inflated"


def test_counts_without_zeros_of_their_own_have_no_such_rival():
    for y in (DRAW.poisson(1.4, 600), DRAW.negative_binomial(0.7, 0.1, 600)):
        rivals = automatic(y.astype(float), "y", ITEM).rivals
        assert {one.name for one in rivals} == {"poisson", "negative_binomial"}


def test_whole_numbers_near_zero_get_a_law_that_has_a_zero():
    """Skewed levels of air, rounded: none is 0 yet, and the next one may be."""
    rng = np.random.default_rng(0)
    y = np.round(np.exp(rng.normal(size=60)[:, None] * 0.5 + rng.normal(size=(60, 5)) * 0.8 + 3.5)).clip(2)
    frame = pl.DataFrame({"g": np.repeat(np.arange(60), 5), "y": y.ravel()})
    model = SimpleModel(simple.LinearModel()).fit(frame, group="g", value="y", validation=None)
    new = pl.DataFrame({"g": [100, 100], "y": [0.0, 30.0]})
    assert np.isfinite(model.score(new))


def test_tiny_positive_numbers_are_no_proportions():
    rng = np.random.default_rng(0)
    tiny = rng.lognormal(-12, 0.8, 400)
    assert families.Beta.applicable(tiny) is None
    assert families.Beta.applicable(rng.uniform(0.01, 0.6, 400)) is not None


def test_skewed_numbers_that_may_be_below_0_are_johnsons(monkeypatch):
    """As delays are, of which an early one is a little below 0."""
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    draw = np.random.default_rng(4)
    late = np.exp(2 + draw.normal(size=(120, 1)) + draw.normal(size=(120, 3))) - 10
    (choice,) = decided(late, 120, 3).choices
    assert choice.family.name == "johnson"


def test_johnsons_scale_bends_where_the_values_say():
    y = -3 + 0.5 * np.sinh(1 + 0.8 * np.random.default_rng(0).normal(size=4000))
    found = families.Johnson.sized(y, 1)
    assert found["centre"] == pytest.approx(-3, abs=0.2)
    assert found["width"] == pytest.approx(0.5, rel=0.25)
    shifted = families.Johnson.sized(1000 * y + 7, 1)
    assert shifted["width"] == pytest.approx(1000 * found["width"], rel=1e-3)


def test_shares_with_heavy_tails_need_not_be_beta(monkeypatch):
    """A panel of rates that stay as they are, and now and then jump."""
    monkeypatch.setattr(deciding, "SECONDS", 60.0)
    draw = np.random.default_rng(0)
    rate = 0.5 + 0.1 * draw.normal(size=(80, 1)).clip(-3, 3) + 0.005 * draw.standard_t(2.1, (80, 4)).clip(-20, 20)
    (jumps,) = decided(rate, 80, 4).choices
    assert jumps.family.name == "student_t"
    (even,) = decided(draw.beta(2, 3, (80, 4)), 80, 4).choices
    assert even.family.name == "beta"


def test_counts_of_an_item_that_never_came_near_0_are_counts():
    """Of 25 values each, some items have none below 10; the next may be 0 all the same."""
    draw = np.random.default_rng(0)
    columns = [draw.negative_binomial(0.8, 0.8 / (0.8 + mean), 25) + low for mean, low in ((4, 0), (30, 11), (60, 12))]
    y, item = np.concatenate(columns).astype(float), np.repeat(np.arange(3), 25)
    automatic(y, "y", item).family.check(np.zeros(3), item=np.arange(3))


def test_goals_of_a_team_with_few_matches_are_goals_like_those_of_others():
    draw = np.random.default_rng(2)
    sizes = np.array([25] * 4 + [60] * 8)
    item = np.repeat(np.arange(12), sizes)
    assert automatic(draw.poisson(1.6, len(item)).astype(float), "y", item).family.name == "poisson"


def test_an_item_that_comes_near_0_may_be_0_where_others_are():
    """Skewed amounts beside yes or no: the next one may be 0, which no law of positive numbers has."""
    draw = np.random.default_rng(0)
    item = np.repeat(np.arange(2), 300)
    for low, near in ((0.0, True), (20.0, False)):
        y = np.concatenate([low + np.exp(draw.normal(1.0, 0.9, 300)), draw.integers(0, 2, 300)])
        family = automatic(y, "y", item).family
        assert isinstance(family, families.PerItem)
        assert (family.parts[family.kinds[0]].name == "gaussian") == near


@pytest.mark.parametrize(("gain", "chosen"), [(-0.05, "weibull"), (0.05, "student_t(5)")])
def test_of_laws_with_as_many_parameters_the_likelier_one_is_taken(gain, chosen):
    """Both far better than a normal one; which of them stands first in the list decides nothing."""
    rng = np.random.default_rng(0)
    base, weight = rng.normal(size=40), np.ones(40)
    each = {"gaussian": base, "weibull": base + 1, "student_t(5)": base + 1 + gain + rng.normal(size=40) * 0.02}
    scores = {name: torch.as_tensor(np.stack([one, weight], 1)) for name, one in each.items()}
    assert deciding._best(scores) == chosen
