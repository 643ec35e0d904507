"""Options are declared once: constructors, docstrings, checks and the shell follow from the fields."""

import inspect
import subprocess
import sys
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import pytest

from efattn import EFA, DataError, LatentFactor, Training
from efattn.data.roles import SEVERAL, SINGLE
from efattn.declared import check, described, explained
from efattn.errors import named, option, shown
from efattn.options import FIT, ROLES, EFAOptions, fit_words

KINDS = pytest.mark.parametrize("kind", [EFA, LatentFactor, Training])


@KINDS
def test_the_docstring_lists_every_option_with_its_default(kind):
    for one in fields(kind):
        assert f"\n    {one.name}={one.default!r}: " in kind.__doc__
        assert one.metadata["help"], one.name
    assert all(len(line) <= 120 for line in kind.__doc__.splitlines())
    assert "\x02" not in kind.__doc__


@KINDS
def test_the_signature_is_what_the_fields_say(kind):
    defaults = {name: one.default for name, one in inspect.signature(kind).parameters.items()}
    assert defaults == {one.name: one.default for one in fields(kind)}


def test_an_option_of_training_is_pointed_to():
    with pytest.raises(TypeError, match=r"^epochs is an option of training: EFA\(training=Training\(epochs=3\)\)\.$"):
        EFA(epochs=3)
    with pytest.raises(TypeError, match="heads is an option of EFA, not of LatentFactor"):
        LatentFactor(heads=2)
    with pytest.raises(TypeError, match=r"EFA has no option 'widht'. Did you mean 'width'"):
        EFA(widht=3)
    with pytest.raises(TypeError, match="width is an option of EFA, not of Training"):
        Training(width=3)


def test_a_repr_shows_what_differs():
    assert repr(Training()) == "Training()"
    assert repr(Training(rate=0.1, decay="none")) == "Training(rate=0.1, decay='none')"
    assert repr(EFA(training=Training(epochs=2))) == "EFA(training=Training(epochs=2))"
    assert repr(replace(Training(), clip=1.0)) == "Training()"


WRONG = {
    "layers": (0, 100_000, 1.5, True, "2", None),
    "width": (0, 10**9),
    "seed": (-1, 2**64, 0.5),
    "dropout": (1, -0.1, "much", float("nan"), None),
    "gaps": ("never", 2, None),
    "norm": ("layer", 1),
    "neighbours": (0, 2.0),
    "max_length": (0, 2.0),
    "ensemble": (0, 1001),
}


@pytest.mark.parametrize(("name", "value"), [(name, x) for name, wrong in WRONG.items() for x in wrong])
def test_what_cannot_be_is_refused_with_what_can(name, value):
    with pytest.raises(DataError, match=f"^{name} must be .*, not ") as found:
        check(EFA(**{name: value}))
    assert found.value.option == name
    assert described(EFA)[name].accepts in str(found.value)


@KINDS
def test_every_default_is_allowed(kind):
    check(kind())


def test_a_new_field_is_a_new_option_everywhere():
    @explained
    @dataclass(eq=False, repr=False)
    class More(EFAOptions):
        """More."""

        flavour: Literal["sweet", "sour"] | None = field(default=None, metadata={"help": "Of it."})

    assert "flavour=None: Of it." in More.__doc__
    check(More(flavour="sour"))
    with pytest.raises(DataError, match="flavour must be 'sweet', 'sour' or None, not 'salty'"):
        check(More(flavour="salty"))


def test_every_argument_of_fit_is_explained():
    names = list(inspect.signature(EFA.fit).parameters)[3:]
    assert {role.name for role in ROLES} | set(FIT) == set(names)
    assert {role.name for role in ROLES if role.several} == set(SEVERAL)
    assert {role.name for role in ROLES if not role.several} == set(SINGLE)
    assert all(f"    {name}: " in fit_words() for name in names)


def test_an_option_inside_a_text_is_shown_by_each_front_end():
    text = f"Try {option('rate', 0.1, of='Training')}, or {option('order')}; {named('width')} is of no use."
    assert shown(text) == "Try Training(rate=0.1), or order=...; width is of no use."
    assert shown(text, lambda name, value: f"<{name} {value}>") == (
        "Try <rate 0.1>, or <order ...>; <width None> is of no use."
    )


def test_options_need_no_torch():
    code = "import sys, efattn, efattn.options; efattn.Training(rate=1); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
