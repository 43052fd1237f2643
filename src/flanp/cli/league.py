"""The command league."""

from pathlib import Path
from typing import Annotated

import typer

from flanp.cli.outcome import console, exit_codes, make_folder, say

Names = list[str] | None


@exit_codes
def league(
    scenario: Annotated[
        Names, typer.Option(help="One of the worlds; may be repeated. All, if left out.")
    ] = None,
    method: Annotated[
        Names, typer.Option(help="One of the methods; may be repeated. All, if left out.")
    ] = None,
    problem: Annotated[
        Names, typer.Option(help="convex or network; may be repeated. Both, if left out.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small league, in minutes.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Cells side by side; one per core.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(help="Play over a Ray cluster: its address, or local.")
    ] = None,
) -> None:
    """Play every way to live with slow clients against the others, each one tuned.

    Started again in the same folder it goes on: a cell that is done is not played twice.
    """
    from flanp.files import write_atomically, write_json
    from flanp.league.picture import draw
    from flanp.league.playing import cores, pairings, play_all, played
    from flanp.league.table import markdown
    from flanp.progress import Progress
    from flanp.report import print_league

    chosen = pairings(scenario or (), method or (), quick, problem or ())
    folder = out or Path("runs") / ("league-quick" if quick else "league")
    make_folder(folder)
    cells = {pairing.path: played(folder, pairing) for pairing in chosen}
    todo = [pairing for pairing in chosen if cells[pairing.path] is None]
    if len(todo) < len(chosen):
        say(f"flanp: {len(chosen) - len(todo)} of {len(chosen)} cells are there from before")
    interrupted = False
    with Progress("league", total=len(todo)) as shown:
        try:
            for cell in play_all(folder, todo, workers or cores(), ray):
                shown.advance()
                shown.note(f"{cell['setting']}, {cell['scenario']}: {cell['method']}")
        except KeyboardInterrupt:
            interrupted = True
    found = [played(folder, pairing) for pairing in chosen]
    done = [cell for cell in found if cell is not None]
    if done:
        write_json(folder / "league.json", done)
        write_atomically(folder / "league.md", markdown(done) + "\n")
        pictures = draw(done, folder)
        print_league(console(), done)
        print(f"all numbers: {folder / 'league.json'}   pictures: {', '.join(map(str, pictures))}")
    if interrupted:
        say(f"flanp: interrupted; {len(done)} of {len(chosen)} cells are done. Go on with the same")
        raise typer.Exit(130)
