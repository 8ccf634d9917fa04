"""`python -m postroad`: the command line."""

from postroad.cli import main

main()
