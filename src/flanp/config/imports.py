"""Parts of a user's own in a configuration: name = "module:attribute"."""

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from flanp.checks import BadInput, first_line, shown


def is_reference(name: str) -> bool:
    """Whether a name is one of a user's own parts."""
    return ":" in name


def imported(reference: str, where: str, folder: Path) -> Any:
    """Return what 'module:attribute' stands for, looked up from a folder first."""
    module, _, attribute = reference.partition(":")
    if not all(word.isidentifier() for word in (*module.split("."), attribute)):
        raise BadInput(f"{where} = {shown(reference)}: write it as module:attribute")
    path = str(folder.resolve())
    _forget_namesake(module.partition(".")[0], folder.resolve())
    sys.path.insert(0, path)
    try:
        return getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the user's own code may raise anything
        raise BadInput(
            f"{where} = {shown(reference)}: it cannot be imported: "
            f"{first_line(error)}{_place(error, module)}"
        ) from error
    finally:
        sys.path.remove(path)
        if path not in sys.path:
            sys.path.append(path)  # for what the module imports later


def _forget_namesake(name: str, folder: Path) -> None:
    """Forget a module of another folder that has the name of one in this folder."""
    own = [folder / f"{name}.py", folder / name / "__init__.py"]
    there = getattr(sys.modules.get(name), "__file__", None)
    if there is not None and any(p.exists() for p in own) and Path(there).resolve() not in own:
        for loaded in [m for m in sys.modules if m == name or m.startswith(f"{name}.")]:
            del sys.modules[loaded]


def _place(error: BaseException, module: str) -> str:
    """Say in which line of the user's module an error was raised, or a syntax error stands."""
    if isinstance(error, SyntaxError):
        return f" at {error.filename}, line {error.lineno}"
    name = module.partition(".")[0]
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if name in (Path(frame.filename).stem, *Path(frame.filename).parts)
    ]
    return f" at {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
