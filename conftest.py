"""What the tests leave out."""

from importlib.util import find_spec

# An app that Flower's processes import; without Flower or PyTorch, modules that
# cannot be imported.
collect_ignore_glob = ["tests/deployment/app/*"]
if not find_spec("flwr"):
    collect_ignore_glob += ["src/flanp/flower/*", "tests/flower/*"]
if not find_spec("torch"):
    collect_ignore_glob += ["src/flanp/pytorch/*", "tests/pytorch/*"]
