"""The commands reproduce and plan."""

from pathlib import Path
from typing import Annotated

import typer

from flanp.checks import BadInput
from flanp.cli.outcome import Overwrite, console, exit_codes, make_folder


@exit_codes
def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(help="Experiments, such as fig3 table1; or all, or list, which names them."),
    ],
    seeds: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="How many.", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with MNIST and CIFAR-10, else downloaded, and FEMNIST.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("runs/reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="A small version, for a look.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Run the paper's experiments and set our numbers beside the published ones."""
    from flanp.data import MissingData
    from flanp.paper import reproduce as experiments

    if names == ["list"]:
        print("\n".join(experiments.names()))
        return
    chosen = experiments.names() if names == ["all"] else [experiments.known(n) for n in names]
    # What would spoil the end of hours of work is refused before it.
    make_folder(out)
    experiments.results_in(out)
    for each in dict.fromkeys(chosen):
        done = out / f"{each}.json"
        there = [done.with_suffix(end) for end in (".json", ".png", ".svg")]
        if any(path.exists() for path in there) and not overwrite:
            if len(chosen) == 1:
                raise BadInput(f"{done} exists already: choose another --out, or --overwrite it")
            print(f"{each}: done before, see {done}; repeat it with --overwrite")
            continue
        try:
            result = experiments.reproduce(each, seeds, data, quick)
        except MissingData as error:
            if names != ["all"]:
                raise
            print(f"{each}: left out: {error}")
            continue
        result.save(out)
        experiments.write_table(out)
        print(f"{result.title} ({result.seconds / 60:.1f} minutes)")
        for finding in result.findings:
            print(f"  {finding.line()}")
        print(f"  {out / each}.png, {out / each}.json", flush=True)


@exit_codes
def plan(
    speeds: Annotated[
        str,
        typer.Option(
            help="CSV file of (client, seconds), uniform:50:500, exp:1, lognormal:1:1, "
            "pareto:1:1.5, devices."
        ),
    ],
    clients: Annotated[int | None, typer.Option(help="N; a file's own if left out.")] = None,
    samples: Annotated[int, typer.Option(help="s, of each client.")] = 100,
    kappa: Annotated[float, typer.Option(help="Condition number of the risk.")] = 20.0,
    n0: Annotated[int, typer.Option(help="Clients of the first stage.")] = 1,
    growth: Annotated[float, typer.Option(help="Growth from stage to stage.")] = 2.0,
    start: Annotated[float, typer.Option(help="Delta_0 / c: how far off the start is.")] = 0.3,
    step: Annotated[
        float, typer.Option(help="eta L: how far a local step goes in the steepest direction.")
    ] = 0.5,
    exchange: Annotated[
        str,
        typer.Option(
            help="What an exchange takes: seconds, steps:10 (of the median client), lines:DOWN:UP "
            "(kbit/s) or phones; the latter two with --megabytes."
        ),
    ] = "0",
    megabytes: Annotated[float, typer.Option(help="Of a model, and of a message.")] = 5.0,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the plan (PNG).", show_default=False)
    ] = None,
) -> None:
    """Predict from speeds and exchanges whether FLANP, or memory, is worth it, and how."""
    from flanp.planning import plan as make_plan
    from flanp.report import print_plan
    from flanp.speeds import Measured
    from flanp.speeds.parsing import parse_network, parse_speeds

    drawn = parse_speeds(speeds)
    if isinstance(drawn, Measured) and clients is None:
        clients = len(drawn.seconds)
    if clients is None:
        raise BadInput("--clients: say how many there are")
    of_fleet = (drawn, clients, samples, kappa, n0, growth, start, step)
    result = make_plan(*of_fleet, network=parse_network(exchange), megabytes=megabytes)
    print_plan(console(), result)
    if plot is not None:
        from flanp.plots import plot_plan

        if plot.suffix not in (".png", ".svg", ".pdf"):
            raise BadInput(f"--plot {plot}: its name must end in .png, .svg or .pdf")
        if plot.exists() or not plot.parent.is_dir():
            there = "exists already" if plot.exists() else "is in no folder that there is"
            raise BadInput(f"--plot {plot}: it {there}: choose another name")
        print(f"drawn: {plot_plan(result, plot)}")
