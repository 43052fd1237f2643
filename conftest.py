"""What the tests leave out."""

from importlib.util import find_spec

# An app that Flower's processes import; without Flower, modules that cannot be imported.
collect_ignore_glob = ["tests/deployment/app/*"]
if not find_spec("flwr"):
    collect_ignore_glob += ["src/flanp/flower/*", "tests/flower/*"]
