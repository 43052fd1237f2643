"""What all commands share: exit codes, folders for results, where words go."""

import inspect
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from flanp.checks import BadInput, first_line, out_of_memory

RESULTS = (
    "history.csv",
    "history.json",
    "checkpoint.safetensors",
    "model.safetensors",
    "curves.png",
    "curves.svg",
    "comparison.json",
    "tuned.json",
    "*/seed-*/history.csv",
    "*/seed-*/history.json",
)
"""The files of a run and of a comparison."""
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace results that are there.")]


def exit_codes(command: Callable[..., None]) -> Callable[..., None]:
    """Turn what a command raises into a line and an exit code; give it the option --debug."""

    @wraps(command)
    def wrapped(*args: Any, debug: bool, **kwargs: Any) -> None:
        from flanp.divergence import Diverged

        try:
            command(*args, **kwargs)
        except typer.Exit:
            raise
        except KeyboardInterrupt:
            say("flanp: interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # whoever read the output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(1) from None
        except Exception as error:
            if debug:
                traceback.print_exc()
            if isinstance(error, BadInput | Diverged | OSError):
                say(f"flanp: {error}")
            elif out_of_memory(error):
                say(f"flanp: out of memory ({first_line(error)}): use fewer clients or samples")
            else:
                say(f"flanp: unexpected, {first_line(error)}; --debug shows where it comes from")
            raise typer.Exit(2 if isinstance(error, BadInput) else 1) from None

    signature = inspect.signature(command)
    option = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, annotation=Debug, default=False
    )
    wrapped.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), option]
    )
    return wrapped


def claim(folder: Path, overwrite: bool) -> None:
    """Make a folder for results; refuse one that holds some, or clear it of them."""
    make_folder(folder)
    results = [path for pattern in RESULTS for path in folder.glob(pattern)]
    if results and not overwrite:
        raise BadInput(
            f"{folder}/ holds results already: choose another folder with --out, "
            "or replace them with --overwrite"
        )
    for path in results:
        path.unlink()


def make_folder(folder: Path) -> None:
    """Make a folder for results, and see whether files can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}; see --out") from error


def console() -> Console:
    """Return a console; in a file or a pipe, lines are as wide as the tables need."""
    return Console(width=None if sys.stdout.isatty() else 140)


def say(text: str) -> None:
    """Print a line beside the results."""
    print(text, file=sys.stderr)
