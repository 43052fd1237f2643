"""The command line."""

import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flanp.checks import BadInput, nearest
from flanp.config import Config, default_text, load_config

CHECKPOINT_SECONDS = 60.0
RESULTS = (
    "history.*",
    "checkpoint.safetensors",
    "model.safetensors",
    "curves.*",
    "comparison.json",
    "*/seed-*/history.*",
)
"""The files of a run and of a comparison."""

app = typer.Typer(
    help="Federated learning that finishes sooner when clients differ in speed.",
    invoke_without_command=True,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: a.b=c. May be repeated.", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that are there.")]


def main() -> None:
    """Run the command line; exit codes: 0 done, 1 failed, 2 bad input, 130 interrupted."""
    app()


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from flanp import __version__

        print(f"flanp {__version__}")
        raise typer.Exit


def _exit_codes(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        from flanp.simulation import Diverged

        try:
            command(*args, **kwargs)
        except BadInput as error:
            _say(f"flanp: {error}")
            raise typer.Exit(2) from None
        except OSError as error:
            _say(f"flanp: {error}")
            raise typer.Exit(1) from None
        except Diverged as error:
            _say(f"flanp: {error}")
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            _say("flanp: interrupted")
            raise typer.Exit(130) from None

    return wrapped


@app.command()
@_exit_codes
def run(
    config: Annotated[Path, typer.Argument(help="TOML file.")],
    method: Annotated[
        str | None, typer.Option(help="Which method, where the file has several.")
    ] = None,
    set_: Set = None,
    out: Out = None,
    overwrite: Overwrite = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with an interrupted run.")
    ] = False,
) -> None:
    """Run one method and save its history, model and curves."""
    from flanp.plots import plot_run
    from flanp.report import print_run
    from flanp.simulation import Simulation

    loaded = load_config(config, set_ or ())
    name, chosen = _choose(loaded, method)
    folder = out or Path("runs") / config.stem
    if not resume:
        _claim(folder, overwrite)
    s = loaded.settings
    target = s.target
    if isinstance(target, str):
        from flanp.comparison import resolve_target

        target = resolve_target(target, loaded.problem, loaded.data.load(s.seed))
    simulation = Simulation(
        loaded.problem,
        loaded.data,
        chosen.solver,
        chosen.participation,
        chosen.stop,
        chosen.work,
        loaded.speeds,
        seed=s.seed,
        target=target,
        **s.limits(),
        resume=folder if resume else None,
    )
    simulation.history.about["config"] = loaded.raw
    _run_to_end(simulation, name, folder)
    plot_run(simulation.history, folder / "curves")
    print_run(_console(), name, simulation.history)
    print(f"saved in {folder}/")


def _run_to_end(simulation: Any, name: str, folder: Path) -> None:
    """Run, saving now and then, and whatever happens in the end."""
    from flanp.progress import Progress

    saved = time.monotonic()
    try:
        with Progress(name) as shown:
            for row in simulation:
                shown.row(row, len(simulation.sizes), simulation.engine.s.size)
                if time.monotonic() - saved > CHECKPOINT_SECONDS:
                    simulation.save(folder)
                    saved = time.monotonic()
    except KeyboardInterrupt:
        simulation.history.about["ended"] = "interrupted"
        simulation.save(folder)
        _say(f"flanp: interrupted; saved in {folder}/. Go on with --resume")
        raise typer.Exit(130) from None
    except Exception:
        if simulation.history.rows:
            simulation.history.save(folder)
            _say(f"the history up to there is saved in {folder}/")
        raise
    simulation.save(folder)
    simulation.save_params(folder)


@app.command()
@_exit_codes
def compare(
    config: ConfigFile = None,
    set_: Set = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare methods on the same data, model and speeds, over several seeds."""
    from flanp.comparison import Comparison
    from flanp.comparison import compare as run_comparison
    from flanp.plots import plot_comparison
    from flanp.report import print_comparison

    loaded = load_config(config, set_ or ())
    folder = out or Path("runs") / (f"{config.stem}-compare" if config else "compare")
    _claim(folder, overwrite)
    s = loaded.settings
    result = Comparison(about={"config": loaded.raw})
    interrupted = False
    try:
        run_comparison(
            loaded.problem,
            loaded.data,
            loaded.methods,
            loaded.speeds,
            seeds=s.seeds,
            seed=s.seed,
            target=s.target,
            partial=result,
            **s.limits(),
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if any(result.histories.values()):
            result.save(folder)
    if result.targets:
        plot_comparison(result, folder / "curves")
        print_comparison(_console(), loaded, result)
    if interrupted:
        _say(
            f"flanp: interrupted after {len(result.targets)} of {s.seeds} seeds; saved in {folder}/"
        )
        raise typer.Exit(130)
    print(f"curves: {folder / 'curves.png'}   all numbers: {folder / 'comparison.json'}")
    if all(run.diverged for runs in result.histories.values() for run in runs):
        _say("flanp: every run diverged. Lower eta, gamma or tau")
        raise typer.Exit(1)


@app.command()
@_exit_codes
def reproduce(
    name: Annotated[
        str, typer.Argument(help="An experiment, such as fig3 or table1; or all, or list.")
    ],
    seeds: Annotated[int | None, typer.Option(min=1, help="How many.", show_default=False)] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with MNIST and CIFAR-10; else downloaded.", show_default=False),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for a look.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Run the paper's experiments and set our numbers beside the published ones."""
    from flanp import reproduce as experiments

    if name == "list":
        print("\n".join(experiments.names()))
        return
    for each in experiments.names() if name == "all" else [experiments.TABLES.get(name, name)]:
        done = out / f"{each}.json"
        if name == "all" and done.exists() and not overwrite:
            print(f"{each}: done before, see {done}; repeat it with --overwrite")
            continue
        if done.exists() and not overwrite:
            raise BadInput(f"{done} exists already: choose another --out, or --overwrite it")
        result = experiments.reproduce(each, seeds, data, quick)
        result.save(out)
        experiments.write_table(out)
        print(f"{result.title} ({result.seconds / 60:.1f} minutes)")
        for finding in result.findings:
            print(f"  {finding.line()}")
        print(f"  {out / each}.png, {out / each}.json", flush=True)


@app.command()
@_exit_codes
def plan(
    speeds: Annotated[
        str,
        typer.Option(help="CSV file of (client, seconds), uniform:50:500, exp:1, lognormal:1:1."),
    ],
    clients: Annotated[int | None, typer.Option(help="N; a file's own if left out.")] = None,
    samples: Annotated[int, typer.Option(help="s, of each client.")] = 100,
    kappa: Annotated[float, typer.Option(help="Condition number of the risk.")] = 20.0,
    n0: Annotated[int, typer.Option(help="Clients of the first stage.")] = 1,
    growth: Annotated[float, typer.Option(help="Growth from stage to stage.")] = 2.0,
    start: Annotated[float, typer.Option(help="Delta_0 / c: how far off the start is.")] = 0.3,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plan (PNG).", show_default=False)
    ] = None,
) -> None:
    """Predict from the speeds whether FLANP is worth it, and with which n0 and growth."""
    from flanp.planning import parse_speeds
    from flanp.planning import plan as make_plan
    from flanp.report import print_plan
    from flanp.speeds import Measured

    drawn = parse_speeds(speeds)
    if isinstance(drawn, Measured):
        clients = clients or len(drawn.seconds)
    if clients is None:
        raise BadInput("--clients: say how many there are")
    result = make_plan(drawn, clients, samples, kappa, n0, growth, start)
    print_plan(_console(), result)
    if plot is not None:
        from flanp.plots import plot_plan

        if plot.exists():
            raise BadInput(f"{plot} exists already: choose another name")
        print(f"drawn: {plot_plan(result, plot)}")


flower = typer.Typer(help="FLANP on real machines, through Flower.", no_args_is_help=True)
app.add_typer(flower, name="flower")


@flower.callback()
def _flower() -> None:
    pass


@flower.command()
@_exit_codes
def up(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Folder of a Flower app; an example if left out.", show_default=False),
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="How many SuperNodes.", min=1)] = None,
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
        from flanp.flower import up as deployed
    except ModuleNotFoundError as error:
        raise BadInput("Flower is not installed: pip install 'flanp[flower]'") from error
    from flanp.history import History
    from flanp.plots import plot_run
    from flanp.report import print_run

    flower_app = folder or deployed.example_app()
    seconds = deployed.parse_slow(slow, nodes)
    results = out / "run"
    config = deployed.run_config(flower_app, set_ or (), out.resolve(), len(seconds), resume)
    if not resume:
        _claim(results, overwrite)
    went_well = deployed.up(flower_app, seconds, config, out, lambda line: print(line, flush=True))
    if (results / "history.csv").exists():
        history = History.load(results)
        plot_run(history, results / "curves")
        print_run(_console(), flower_app.name, history)
        print(f"saved in {results}/")
    if not went_well:
        _say(f"flanp: the run failed; see {out / 'logs'}/")
        raise typer.Exit(1)


@app.command()
@_exit_codes
def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("flanp.toml"),
) -> None:
    """Write a commented configuration to start from."""
    if file.exists():
        raise BadInput(f"{file} exists already: choose another name")
    try:
        file.write_text(default_text(), "utf-8")
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}; try: flanp compare {file}")


def _choose(config: Config, name: str | None) -> tuple[str, Any]:
    methods = config.methods
    if name is None:
        if len(methods) > 1:
            raise BadInput(
                f"the file has {len(methods)} methods: choose one with --method, "
                f"or run them all with `flanp compare`; there are: {', '.join(methods)}"
            )
        name = next(iter(methods))
    if name not in methods:
        raise BadInput(f"--method {name}: unknown{nearest(name, methods)}")
    return name, methods[name]


def _claim(folder: Path, overwrite: bool) -> None:
    """Make a folder for results; refuse one that holds some, or clear it of them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".flanp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}; see --out") from error
    results = [path for pattern in RESULTS for path in folder.glob(pattern)]
    if results and not overwrite:
        raise BadInput(
            f"{folder}/ holds results already: choose another folder with --out, "
            "or replace them with --overwrite"
        )
    for path in results:
        path.unlink()


def _console() -> Console:
    """Return a console; in a file or a pipe, lines are as wide as the tables need."""
    return Console(width=None if sys.stdout.isatty() else 140)


def _say(text: str) -> None:
    print(text, file=sys.stderr)
