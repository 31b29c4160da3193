"""`python -m multum`."""

from .cli import main

main()
