"""Run the command line with `python -m flanp`."""

from flanp.cli import main

main()
