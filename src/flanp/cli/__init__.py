"""The command line."""

from typing import Annotated

import typer

from flanp.cli import flower, league, paper, runs
from flanp.cli.compiled import keep_compiled

app = typer.Typer(
    help="Federated learning that finishes sooner when clients differ in speed.",
    invoke_without_command=True,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    runs.run,
    runs.compare,
    runs.tune,
    league.league,
    paper.reproduce,
    paper.plan,
    runs.init,
):
    app.command()(command)
app.add_typer(flower.app, name="flower")


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    app()


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep compiled programs for the next time.")
    ] = True,
) -> None:
    if version:
        from flanp import __version__

        print(f"flanp {__version__}")
        raise typer.Exit
    if cache:
        keep_compiled()
