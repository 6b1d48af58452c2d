"""`python -m tulle.cli` is the `tulle` command."""

from tulle.cli.main import run

run()
