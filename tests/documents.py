"""What the README and the other pages tell a reader to type."""

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
    ROOT / "src/flanp/paper/experiments/README.md",
    *sorted((ROOT / "examples").glob("*/README.md")),
]
FENCED = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^    \S.*\n)+", re.MULTILINE)
INLINE = re.compile(r"`((?:flanp|make) [^`]+)`")


class Block(NamedTuple):
    """A piece of code on a page."""

    page: str
    language: str
    text: str


def _read(page):
    text = page.read_text("utf-8")
    name = str(page.relative_to(ROOT))
    for language, code in FENCED.findall(text):
        yield Block(name, language, textwrap.dedent(code))
    if name.startswith("examples"):
        for code in INDENTED.findall(FENCED.sub("", text)):
            lines = textwrap.dedent(code).splitlines()
            yield Block(name, "console", "".join(f"$ {line}\n" for line in lines))


BLOCKS = [block for page in PAGES for block in _read(page)]


def commands(block):
    """Return the commands of a console block; one may go over several lines."""
    joined = block.text.replace("\\\n", " ")
    typed = [line[2:] for line in joined.splitlines() if line.startswith("$ ")]
    return [re.sub(r"\s+#\s.*", "", command).strip() for command in typed]


COMMANDS = [
    (block.page, command)
    for block in BLOCKS
    if block.language == "console"
    for command in commands(block)
]
INLINE_COMMANDS = sorted(
    {(str(page.relative_to(ROOT)), c) for page in PAGES for c in INLINE.findall(page.read_text())}
)
ON_FLOWER = re.compile(r"flanp\.flower|flanp flower|flwr|flower-super|ssh-keygen|\[flower")
"""What says that code needs Flower: tests/test_flower.py and tests/deployment run it."""
ON_TORCH = re.compile(r"\btorch\b")
"""What says that code needs PyTorch: tests/pytorch runs it, unless it is for Flower."""
ON_EXTRAS = re.compile(r"flax|equinox")
"""What says that code needs Flax or Equinox: tests/models runs it."""


def runs_without_extras(block):
    """Whether a block needs nothing but flanp itself."""
    return not any(of.search(block.text) for of in (ON_FLOWER, ON_TORCH, ON_EXTRAS))
