"""efattn serve: models over HTTP, and the page that shows them."""

import logging
import sys
import threading
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from efattn.cli import arguments, tables
from efattn.cli.messages import say
from efattn.errors import DataError, counted

PANEL = "Limits"


def add_to(app: typer.Typer) -> None:
    examples = (
        "efattn serve m.efattn --table test.csv",
        "efattn serve ratings.efattn weather.efattn --port 8080",
        "EFATTN_TOKEN=... efattn serve m.efattn --host 0.0.0.0",
    )
    arguments.add(app, serve, *examples)


@arguments.spelled_out
def serve(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL", help="Models that fit wrote.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE", help="Rows to begin with on the page: groups to choose from.", show_default=False
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; 0.0.0.0 for all of the network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 for any that is free.")] = 8765,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="EFATTN_TOKEN", help="Requests must bear it; better told by the variable.", show_default=False
        ),
    ] = None,
    max_rows: Annotated[int, typer.Option(min=1, help="Of one request.", rich_help_panel=PANEL)] = 5_000,
    max_body: Annotated[float, typer.Option(min=0.001, help="MiB of one request.", rich_help_panel=PANEL)] = 4.0,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Until an answer.", rich_help_panel=PANEL)] = 30.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No line for each request.")] = False,
    *,
    layout: dict[str, Any],
) -> None:
    r"""Answer requests over HTTP, and show a page to explore the models with.

    Listens on this machine alone unless told otherwise, until Ctrl-C; requests that are open then are answered first. A
    line of JSON for each goes to standard error. Needs pip install 'efattn\[serve]'."""
    from efattn.explorer import serving  # needs neither FastAPI nor torch yet

    serving.check_installed()
    paths = serving.names_of(models)
    if token is not None and (not token or not token.isascii() or not token.isprintable() or " " in token):
        raise DataError("--token is a word of plain letters, digits and signs, without spaces.", option="token")
    for path in models:
        tables.check_model(path)
    if table is not None:
        tables.check_table(table, layout)
    sock = prepared(host, port)
    fitted = {name: tables.load(path) for name, path in paths.items()}
    rows = {} if table is None else _examples(fitted, table, layout)
    local = host in serving.LOCAL
    if not local and token is None:
        say("note: others on the network can ask these models: no token is set. EFATTN_TOKEN sets one.")
    _log(quiet)

    from efattn.explorer.limits import Limits

    limits = Limits(body=int(max_body * 2**20), rows=max_rows, seconds=max_seconds)
    run(fitted, sock, limits=limits, token=token, hosts=serving.LOCAL if local else None, examples=rows)


def prepared(host: str, port: int) -> Any:
    """A socket, once all that serving needs is found to be there."""
    from efattn.explorer import serving

    serving.check_installed()
    return serving.listening(host, port)


def show(model: Path, table: Path, sock: Any) -> None:
    """One model with its table, in the browser of whoever sits there."""
    fitted = {model.stem: tables.load(model)}
    _log(quiet=True)
    run(fitted, sock, examples=_examples(fitted, str(table), {}), browser=sys.stdout.isatty())


def run(fitted: dict[str, Any], sock: Any, *, browser: bool = False, **how: Any) -> None:
    """Says where, serves, and says when it ends. browser: opened there."""
    from efattn.explorer import serving

    where, names = serving.address(sock), ", ".join(fitted)

    def ready() -> None:
        say(f"{names} at {where} (Ctrl-C ends it).")
        if browser:
            threading.Thread(target=webbrowser.open, args=(where,), daemon=True).start()

    serving.serve(fitted, sock, **how, ready=ready)
    say("Stopped.")


def _examples(fitted: dict[str, Any], table: str, layout: dict[str, Any]) -> dict[str, Any]:
    from efattn.explorer.examples import Examples

    read = tables.read(table, layout)
    found = {name: Examples.of(one, read) for name, one in fitted.items()}
    kept = {name: one for name, one in found.items() if one is not None}
    if not kept:
        one = next(iter(fitted.values()))
        Examples(one, read)  # which says why not
    for name, examples in kept.items():
        say(f"{name}: {counted(len(examples), 'group')} of {table} to begin with.")
    return kept


def _log(quiet: bool) -> None:
    """Lines of JSON as they are, beside the words of a shell."""
    log = logging.getLogger("efattn.serve")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers, log.propagate = [handler], False
    log.setLevel(logging.ERROR if quiet else logging.INFO)
