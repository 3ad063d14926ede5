"""`python -m shopsimulator`, the same as the `shopsimulator` command."""

from shopsimulator.cli import main

main()
