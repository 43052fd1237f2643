"""Writing files so that a crash leaves the old or the new one, never half of it."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary one beside it."""
    temporary = path.with_name(path.name + ".part")
    if isinstance(content, str):
        content = content.encode()
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
