"""The commands run, compare and init."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flanp.checks import BadInput, listed, nearest
from flanp.cli.outcome import Overwrite, claim, console, exit_codes, say

if TYPE_CHECKING:
    from flanp.config import Config
    from flanp.method import Method

ConfigFile = Annotated[Path | None, typer.Argument(help="TOML file.", show_default=False)]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change a value: a.b=c. May be repeated.", show_default=False),
]
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default=False)]


@exit_codes
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
    from flanp.hooks import Checkpointer
    from flanp.progress import Progress

    loaded = _load(config, set_)
    name, chosen = _choose(loaded, method)
    folder = out or Path("runs") / config.stem
    if not resume:
        claim(folder, overwrite)
    with Progress(name) as shown:
        hooks = (Checkpointer(folder), shown)
        simulation = loaded.simulation(chosen, hooks, resume=folder if resume else None)
        try:
            simulation.to_the_end()
        except (KeyboardInterrupt, Exception) as error:
            notes = getattr(error, "__notes__", [])
            for note in notes:
                say(f"flanp: not saved: {note}")
            if isinstance(error, KeyboardInterrupt):
                saved = "" if notes else f"; saved in {folder}/. Go on with --resume"
                say(f"flanp: interrupted{saved}")
                raise typer.Exit(130) from None
            if simulation.history.rows and not notes:
                say(f"the history up to there is saved in {folder}/")
            raise
    from flanp.plots import plot_run
    from flanp.report import print_run

    plot_run(simulation.history, folder / "curves")
    print_run(console(), name, simulation.history)
    print(f"saved in {folder}/")


@exit_codes
def compare(
    config: ConfigFile = None,
    set_: Set = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compare methods on the same data, model and speeds, over several seeds."""
    from flanp.comparison import Comparison
    from flanp.comparison import compare as run_comparison

    loaded = _load(config, set_)
    folder = out or Path("runs") / (f"{config.stem}-compare" if config else "compare")
    claim(folder, overwrite)
    s = loaded.settings
    result = Comparison(about={"config": loaded.raw})
    interrupted = False
    try:
        run_comparison(
            loaded.problem,
            loaded.data,
            loaded.methods,
            loaded.speeds,
            network=loaded.network,
            availability=loaded.availability,
            seeds=s.seeds,
            seed=s.seed,
            target=s.target,
            metrics=loaded.metrics,
            tune=s.tune,
            tuning_seeds=s.tuning_seeds,
            partial=result,
            **s.options(),
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if any(result.histories.values()):
            result.save(folder)
    if result.targets:
        from flanp.plots import plot_comparison
        from flanp.report import print_comparison

        plot_comparison(result, folder / "curves")
        print_comparison(console(), result)
    if interrupted:
        say(
            f"flanp: interrupted after {len(result.targets)} of {s.seeds} seeds; saved in {folder}/"
        )
        raise typer.Exit(130)
    print(f"curves: {folder / 'curves.png'}   all numbers: {folder / 'comparison.json'}")
    if all(run.diverged for runs in result.histories.values() for run in runs):
        say("flanp: every run diverged. Lower eta, gamma or tau")
        raise typer.Exit(1)


@exit_codes
def tune(
    config: ConfigFile = None,
    knob: Annotated[
        list[str] | None,
        typer.Option(help="What to tune: eta, tau, n0, ... May be repeated.", show_default=False),
    ] = None,
    set_: Set = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Find each method's own best knobs, on seeds that a comparison does not use."""
    from flanp.files import write_json
    from flanp.report import print_tuning
    from flanp.trying import tune_methods

    loaded = _load(config, set_)
    folder = out or Path("runs") / (f"{config.stem}-tune" if config else "tune")
    claim(folder, overwrite)
    s = loaded.settings
    knobs = knob or s.tune or ["eta", "tau"]
    first = s.seed + s.seeds
    tuned = tune_methods(
        *(loaded.problem, loaded.data, loaded.methods, loaded.speeds, knobs),
        range(first, first + s.tuning_seeds),
        s.target,
        network=loaded.network,
        availability=loaded.availability,
        metrics=loaded.metrics,
        **s.options(),
    )
    write_json(
        folder / "tuned.json",
        {name: {"knobs": t.knobs, "time": t.time, "runs": t.runs} for name, t in tuned.items()},
    )
    print_tuning(console(), tuned, several="methods" in loaded.raw)
    print(f"saved in {folder}/")


@exit_codes
def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("flanp.toml"),
) -> None:
    """Write a commented configuration to start from."""
    from flanp.config import default_text

    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(default_text())
    except FileExistsError as error:
        raise BadInput(f"{file} exists already: choose another name") from error
    except OSError as error:
        raise BadInput(f"{file} cannot be written: {error.strerror}") from error
    print(f"wrote {file}; try: flanp compare {file}")


def _load(config: Path | None, overrides: list[str] | None) -> "Config":
    from flanp.config import load_config

    loaded = load_config(config, overrides or ())
    for note in loaded.notes:
        say(f"flanp: {note}")
    return loaded


def _choose(config: "Config", name: str | None) -> tuple[str, "Method"]:
    methods = config.methods
    if name is None:
        if len(methods) > 1:
            raise BadInput(
                f"the file has {len(methods)} methods: choose one with --method, "
                f"or run them all with `flanp compare`; there are: {listed(methods)}"
            )
        name = next(iter(methods))
    if name not in methods:
        raise BadInput(f"--method {name}: unknown{nearest(name, methods)}")
    return name, methods[name]
