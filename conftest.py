"""What the tests leave out where an optional library is missing."""

from importlib.util import find_spec

# Their own tests say so when they are skipped; these would fail as doctests.
collect_ignore_glob = [] if find_spec("flwr") else ["src/flanp/flower/*", "tests/nodes.py"]
