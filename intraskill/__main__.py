"""`python -m intraskill` is the `intraskill` command."""

from intraskill.cli import main

if __name__ == "__main__":
    main()
