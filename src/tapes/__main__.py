"""`python -m tapes`: the command, where it is not on the path."""

from tapes.cli.main import main

if __name__ == "__main__":
    main()
