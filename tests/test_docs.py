"""What the README and the other pages say is true: each command and each piece of code runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from documents import (
    BLOCKS,
    COMMANDS,
    INLINE_COMMANDS,
    ON_FLOWER,
    PAGES,
    ROOT,
    commands,
    runs_without_extras,
)

README = (ROOT / "README.md").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
PLACEHOLDERS = re.compile(r"\b[A-Z]{3,}\b|\[")
BY_CI = {"make test", "make test-flower", "make lint", ".venv/bin/python -m pytest"}
"""Commands that .ci/run runs, or that run these tests: the tests cannot run themselves."""
LATER = {"make bench": "benchmarks/round.py"}
"""Commands that take minutes and only measure, and the script that they run."""
DEMO = {"make demo", ".venv/bin/flanp compare"}
"""What test_the_readme_shows_what_the_demo_prints runs."""
INSTALL = "python3 -m venv .venv && .venv/bin/pip install -c constraints.txt -e '.[dev]'"


def of_language(language):
    return [block for block in BLOCKS if block.language == language]


@pytest.mark.parametrize("block", filter(runs_without_extras, of_language("python")))
def test_python_runs(block, capsys):
    exec(compile(block.text, block.page, "exec"), {})


def test_every_block_is_of_a_kind_that_is_tested():
    known = {"python", "console", "text", "toml"}
    assert {block.language for block in BLOCKS} <= known | {""}
    for block in of_language("") + of_language("text"):
        assert not re.search(r"^\$ ", block.text, re.MULTILINE)
    for block in of_language("toml"):  # of Flower's own configuration, or run by test_extend.py
        assert "superlink" in block.text or block.page == "docs/extend.md"


def run(command, place, timeout=240):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readme_shows_what_the_demo_prints(tmp_path):
    """Run `make demo` or, where these tests run in another environment, what it runs."""
    recipe = "$(BIN)/flanp compare --overwrite --out runs/demo"
    assert f"demo: $(INSTALLED)\n\t{recipe}\n" in MAKEFILE
    command, place = "flanp compare --overwrite --out runs/demo", tmp_path
    if Path(sys.prefix) == ROOT / ".venv" and (ROOT / ".venv" / ".installed").exists():
        command, place = "make demo", ROOT
    demo = run(command, place)
    (shown,) = (block.text for block in of_language("text") if "waiting" in block.text)
    printed = demo[demo.index("Tuned") :].splitlines()
    for line, told in zip(shown.splitlines(), printed[: len(shown.splitlines())], strict=True):
        words, numbers = split(line)
        assert words == split(told)[0]
        # The last digits depend on the processor.
        assert numbers == pytest.approx(split(told)[1], rel=0.03, abs=0.02)


def split(line):
    """Return a line's words, and its numbers."""
    number = r"\d[\d,]*\.?\d*"
    numbers = [float(n.replace(",", "").rstrip(".")) for n in re.findall(number, line)]
    return re.sub(number, "#", line).split(), numbers


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_commands_run(page, command, tmp_path):
    if command in BY_CI | LATER.keys():
        target = command.removeprefix("make ")
        assert re.search(rf"^{target}: ", MAKEFILE, re.MULTILINE) or "pytest" in command
        assert command not in LATER or LATER[command] in MAKEFILE
    elif command == INSTALL:
        recipe = MAKEFILE.replace("$(VENV)", ".venv").replace("$(BIN)", ".venv/bin")
        recipe = recipe.replace("$(PYTHON)", "python3").replace("--quiet --constraint", "-c")
        recipe = recipe.replace("--editable", "-e").replace("python -m pip", "pip")
        for part in INSTALL.split(" && "):
            assert f"\t{part}\n" in recipe
    elif command not in DEMO and not ON_FLOWER.search(command):
        run(command, tmp_path)


@pytest.mark.parametrize(("page", "command"), INLINE_COMMANDS)
def test_commands_in_the_text_run(page, command, tmp_path):
    """Those with all they need run; of the others the words are known."""
    words = shlex.split(command.replace("[", "").replace("]", ""))
    if words[0] == "make":
        assert re.search(rf"^{words[1]}: ", MAKEFILE, re.MULTILINE)
        return
    known_to_the_command_line(words[1:])
    complete = len(words) > 2 and not PLACEHOLDERS.search(command)
    if complete and words[1] not in ("flower", "reproduce"):
        run(command, tmp_path)


def known_to_the_command_line(words):
    from flanp.cli import app
    from flanp.paper import reproduce

    command = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        words = words[1:]
    options = {name for parameter in command.params for name in parameter.opts}
    for word in words:
        assert not word.startswith("--") or word in options | {"--help"}
    if command.name == "reproduce" and words:
        names = {*reproduce.names(), *reproduce.TABLES, "all", "list", "NAME"}
        assert {word for word in words if not word.startswith("-")} <= names | {"DIR"}
    assert command.name not in ("main", "root") or not words, words


def test_a_name_of_a_part_can_be_changed_to_any_other(tmp_path):
    """What the README's example does, for every part of the bundled configuration."""
    from flanp.checks import BadInput
    from flanp.config import load_config
    from flanp.config.families import FAMILIES
    from flanp.parts import field_types

    raw = load_config(None).raw
    for family in raw.keys() & FAMILIES.keys():
        for name, cls in FAMILIES[family].members.items():
            try:
                config = load_config(None, [f"{family}.name={name}"])
            except BadInput as error:
                message = str(error)
            else:
                dropped = raw[family].keys() - {"name"} - field_types(cls).keys()
                assert all(key in config.notes[0] for key in dropped)
                assert bool(config.notes) == bool(dropped)
                continue
            assert "it is missing" in message or "one of the two" in message, message


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            if not target.startswith("http"):
                assert (page.resolve().parent / target).exists(), f"{page}: {target}"


def test_the_single_file_version_runs(oracle, capsys):
    oracle.main()
    assert "times as fast" in capsys.readouterr().out
    source = Path(oracle.__file__).read_text("utf-8").splitlines()
    assert len(source) <= 150
    assert f"in {len(source)} lines of NumPy" in README


def test_the_first_words_on_the_comparison_say_how_it_was_tuned():
    assert commands(next(b for b in BLOCKS if b.page == "README.md"))[0] == "make demo"
    lines = next(b.text for b in of_language("text") if "waiting" in b.text).splitlines()
    assert lines[0].startswith("Tuned: each method at its own best, found on seeds")
    before = README[: README.index("```text")]
    assert "each method with its own best step size" in before
