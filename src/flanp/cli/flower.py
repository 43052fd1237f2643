"""The commands flower ..."""

from pathlib import Path
from typing import Annotated

import typer

from flanp.checks import BadInput
from flanp.cli.outcome import Overwrite, claim, console, exit_codes, say

app = typer.Typer(help="FLANP on real machines, through Flower.", no_args_is_help=True)


@app.callback()
def _flower() -> None:
    pass


@app.command()
@exit_codes
def up(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of a Flower app; an example if left out.", show_default=False),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="How many SuperNodes.", min=1, max=1000)] = None,
    slow: Annotated[
        str | None,
        typer.Option(help="Seconds that each node's rounds take longer, such as 0,0,1,4."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a value of the app: key=value. May be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for results, logs and keys.")] = Path(
        "runs/flower"
    ),
    overwrite: Overwrite = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run.")
    ] = False,
) -> None:
    """Start a SuperLink and SuperNodes on this machine, run an app, stop them all."""
    try:
        from flanp.flower.local import up as deployed
    except ModuleNotFoundError as error:
        raise BadInput("Flower is not installed: pip install 'flanp[flower]'") from error
    from flanp.history import History
    from flanp.plots import plot_run
    from flanp.report import print_run

    flower_app = (folder or deployed.example_app()).resolve()  # Flower runs in another folder
    seconds = deployed.parse_slow(slow, nodes)
    results = out / "run"
    config = deployed.run_config(flower_app, set_ or (), out.resolve(), len(seconds), resume)
    if not resume:
        claim(results, overwrite)
    went_well = deployed.up(flower_app, seconds, config, out, lambda line: print(line, flush=True))
    if (results / "history.csv").exists():
        history = History.load(results)
        plot_run(history, results / "curves")
        print_run(console(), flower_app.name, history)
        print(f"saved in {results}/")
    if not went_well:
        say(f"flanp: the run failed; see {out / 'logs'}/")
        raise typer.Exit(1)
