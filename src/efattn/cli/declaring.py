"""From declared options to those of a command, and from a user's words to their values.

layers: int = field(default=2, metadata={"help": "Layers of attention.", ...})
--layers INTEGER    Layers of attention. Default 2.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import NoneType
from typing import Annotated, Any

import typer

from efattn.cli.names import flag, shell_option
from efattn.declared import Option, Role
from efattn.errors import shown


def from_role(role: Role, panel: str) -> inspect.Parameter:
    kind, metavar = (list[str], "COLUMN,...") if role.several else (str, "COLUMN")
    return parameter(role.name, kind, shown(role.help, shell_option), panel, metavar)


def from_option(one: Option, panel: str, more: str = "") -> inspect.Parameter:
    """more: what there is to say in a shell only."""
    help_ = " ".join(filter(None, (shown(one.help, shell_option), more, f"Default {_word(one.default)}.")))
    if bool in one.kinds:
        return parameter(one.name, bool, help_, panel, flags=f"{flag(one.name)}/--no-{flag(one.name)[2:]}")
    words = sorted(one.choices, key=lambda word: (word != one.default, one.choices.index(word)))
    return parameter(one.name, list[str] if one.several else str, help_, panel, one.metavar or _metavar(one), words)


def parameter(
    name: str,
    kind: Any,
    help_: str,
    panel: str | None = None,
    metavar: str | None = None,
    words: Iterable[str] = (),
    flags: str | None = None,
) -> inspect.Parameter:
    """None unless given. words: what a shell completes it to."""
    known = tuple(words)
    complete = (lambda incomplete: [word for word in known if word.startswith(incomplete)]) if known else None
    told = typer.Option(
        flags or flag(name),
        help=help_,
        metavar=metavar,
        rich_help_panel=panel,
        show_default=False,
        autocompletion=complete,
    )
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, told]
    )


def _word(default: Any) -> str:
    if default is None or isinstance(default, bool):
        return {None: "none", True: "yes", False: "no"}[default]
    return f"{default:g}" if isinstance(default, float) else str(default)


def _metavar(one: Option) -> str:
    number = ["INTEGER"] if int in one.kinds else ["NUMBER"] if float in one.kinds else []
    text = ["TEXT"] if str in one.kinds or one.free else []
    return "|".join([*number, *text, *one.choices, *["none"] * (NoneType in one.kinds)])


def with_parameters(command: Callable[..., None], parameters: Iterable[inspect.Parameter]) -> Callable[..., None]:
    """The command, as if its parameters were written out; a required one may stand anywhere."""
    ordered = sorted(parameters, key=lambda one: one.default is not inspect.Parameter.empty)
    whole = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in ordered]

    @functools.wraps(command)
    def made(**asked: Any) -> None:
        command(**asked)

    made.__signature__ = inspect.Signature(whole)  # type: ignore[attr-defined]
    made.__annotations__ = {one.name: one.annotation for one in whole}
    return made


def values(known: Mapping[str, Option], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as Python has them. A word that means nothing stays as it is, and is refused with
    everything else that cannot be."""
    return {name: value(one, asked[name]) for name, one in known.items() if asked.get(name) is not None}


def value(one: Option, word: Any) -> Any:
    if not isinstance(word, str) or word in one.choices:
        return word
    if word.lower() == "none" and (one.free or NoneType in one.kinds):
        return None
    for kind in (int, float):
        if kind in one.kinds:
            try:
                number = kind(word)
            except ValueError:
                continue
            return None if one.zero and number == 0 else number
    return word
