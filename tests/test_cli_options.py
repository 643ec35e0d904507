"""The options of efattn fit are those that are declared: nothing is written twice."""

from dataclasses import dataclass, field
from typing import Literal

import pytest
import typer
from shell import BRIEF, QUICK, forked
from small import ratings, weather

import efattn as library
from efattn import DataError, families
from efattn.cli import app, fitting
from efattn.cli.declaring import value, values
from efattn.cli.names import flag
from efattn.declared import described
from efattn.options import FAMILIES, ROLES, EFAOptions, LatentFactorOptions
from efattn.training_options import Training

DECLARED = {
    **{name: one for kind in (LatentFactorOptions, EFAOptions, Training) for name, one in described(kind).items()}
}
DECLARED.pop("training")


def fit_options():
    return {one.name: one for one in typer.main.get_command(app).commands["fit"].params}


@pytest.mark.parametrize("name", DECLARED)
def test_every_declared_option_is_one_of_fit_with_its_default_in_the_help(name):
    one, default = fit_options()[name], DECLARED[name].default
    assert flag(name) in one.opts
    shown = {None: "none", False: "no"}.get(default, default) if default is None or default is False else default
    assert f"Default {shown:g}." in one.help if isinstance(shown, float) else f"Default {shown}." in one.help
    assert "\x02" not in one.help
    assert len(one.help) > len("Default .") + len(str(shown))


def test_every_role_is_an_option_of_fit():
    for role in ROLES:
        assert flag(role.name) in fit_options()[role.name].opts
    for name in ("missing", "validation", "checkpoint", "resume", "history"):
        assert flag(name) in fit_options()[name].opts


def test_a_new_field_is_a_new_option(monkeypatch):
    @dataclass(eq=False, repr=False)
    class More(EFAOptions):
        flavour: Literal["sweet", "sour"] | None = field(default=None, metadata={"help": "Of it."})
        salt: float = field(default=0.5, metadata={"help": "Grains.", "low": 0})

    monkeypatch.setattr(fitting, "EFAOptions", More)
    monkeypatch.setattr(fitting, "KINDS", {**fitting.KINDS, fitting.Kind.efa: More})
    made = typer.Typer()
    fitting.add_to(made)
    found = {one.name: one for one in typer.main.get_command(made).params}
    assert found["flavour"].opts == ["--flavour"]
    assert found["flavour"].metavar == "sweet|sour|none"
    assert found["salt"].help == "Grains. Default 0.5."
    assert values(described(More), {"flavour": "none", "salt": "0.25", "layers": None}) == {
        "flavour": None,
        "salt": 0.25,
    }


@pytest.mark.parametrize(
    ("name", "word", "meant"),
    [
        ("layers", "3", 3), ("layers", "three", "three"), ("rate", "1e-3", 1e-3), ("patience", "auto", "auto"),
        ("patience", "none", None), ("patience", "0", None), ("clip", "0", None), ("clip", "None", None),
        ("decay", "none", "none"), ("standardise", "none", "none"), ("norm", "none", None), ("dropout", "auto", "auto"),
        ("epochs", "0", 0), ("gaps", True, True), ("companions", "none", None), ("device", "cuda:1", "cuda:1"),
        ("average", "none", "none"), ("max_length", "7", 7),
    ],
)  # fmt: skip
def test_words_become_values(name, word, meant):
    found = value(DECLARED[name], word)
    assert found == meant
    assert type(found) is type(meant)


def test_an_option_without_a_range_shows_its_kind():
    shown = {name: one.metavar for name, one in fit_options().items()}
    assert shown["dropout"] == "NUMBER|auto"
    assert shown["patience"] == "INTEGER|auto|none"
    assert shown["context"] == "others|past|any"
    assert shown["attributes"] == "COLUMN,..."


def test_help_lists_every_family_that_a_value_may_have():
    assert set(FAMILIES) == set(families.value_families()) & {one.name for one in families.FAMILIES}
    told = fit_options()["family"].help
    assert all(name in told for name in FAMILIES)
    assert "categorical" not in told


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("options")
    ratings().write_csv(folder / "ratings.csv")
    weather().write_csv(folder / "weather.csv")
    weather().rename({"latitude": "lat,lon"}).write_csv(folder / "odd.csv")
    return folder


def test_columns_may_be_given_as_a_list(home):
    roles = ["--group", "day", "--item", "station", "--value", "tmax,tmin", "--terms", "value"]
    words = ["weather.csv", *roles, "--attributes", "latitude, longitude", *QUICK, "-o", "a.efattn"]
    forked("fit", *words, cwd=home).good()
    found = library.load(home / "a.efattn").schema_.roles
    assert found.of("attributes") == ("latitude", "longitude")
    assert found.of("value") == ("tmax", "tmin")
    words = ["odd.csv", *roles, "--attributes", "lat,lon", "--attributes", "longitude", *QUICK, "-o", "b.efattn"]
    forked("fit", *words, cwd=home).good()
    assert library.load(home / "b.efattn").schema_.roles.of("attributes") == ("lat,lon", "longitude")
    told = forked("fit", "weather.csv", *roles, "--attributes", "latitude,longitud", "-o", "c.efattn", cwd=home)
    assert told.code == 2
    assert "Did you mean 'longitude'?" in told.err


REFUSED = {
    "--layers": ("100000", "from 1 to 256"),
    "--seed": (str(2**64), "must be a whole number from 0"),
    "--rate": ("fast", "must be a number > 0"),
    "--decay": ("slowly", "'plateau', 'cosine' or 'none'"),
    "--context": ("pst", "'others', 'past' or 'any'"),
    "--norm": ("layer", "'pre', 'post' or None"),
    "--validation": ("nowhere.csv", "There is no file 'nowhere.csv'"),
    "--family": ("poison", "Did you mean 'poisson'?"),
    "--width": ("9.5", "must be a whole number from 1 to 65536 or 'auto'"),
    "--width 9 --heads": ("2", "--width 9 is not a multiple of --heads 2"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_value_that_cannot_be_is_refused_with_what_can(home, name):
    word, told = REFUSED[name]
    roles = ["--group", "user", "--item", "movie", "--value", "rating"]
    code, out, err = forked("fit", "ratings.csv", *roles, *name.split(), word, "-o", "never.efattn", cwd=home)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1
    assert not (home / "never.efattn").exists()


def test_options_of_one_model_are_refused_by_the_other(home):
    words = ["fit", "ratings.csv", "--group", "user", "--item", "movie", "-o", "never.efattn"]
    assert "--intercept is for --model latent" in forked(*words, "--intercept", cwd=home).err
    assert "--layers is for --model efa" in forked(*words, "--layers", "2", "--model", "latent", cwd=home).err
    forked(*words[:-1], "l.efattn", "--model", "latent", "--intercept", *BRIEF, cwd=home).good()
    assert library.load(home / "l.efattn").intercept is True


@pytest.mark.skipif(not hasattr(library, "read_baskets"), reason="baskets cannot be read yet")
def test_baskets_one_a_line(tmp_path):
    (tmp_path / "baskets.txt").write_text("milk,bread\ntea,milk,bread\nbread,tea\n" * 8)
    forked("fit", "baskets.txt", "--baskets", "-o", "b.efattn", *QUICK, cwd=tmp_path).good()
    model = library.load(tmp_path / "b.efattn")
    assert len(model.schema_.vocabulary) == 3
    found = forked("score", "b.efattn", "baskets.txt", "--baskets", "--json", cwd=tmp_path).good().json()
    assert found["observations"] == 7 * 8


def test_baskets_have_no_columns_to_name(tmp_path):
    (tmp_path / "baskets.txt").write_text("milk,bread\n")
    told = forked("fit", "baskets.txt", "--baskets", "--columns", "a,b", "-o", "b.efattn", cwd=tmp_path)
    assert told.code == 2
    assert "leave --columns out" in told.err


def test_the_same_words_of_python_and_shell():
    with pytest.raises(DataError, match="rate must be a number > 0, not -1"):
        Training(rate=-1)
