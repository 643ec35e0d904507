"""python -m efattn: the command line."""

from efattn.cli import main

if __name__ == "__main__":
    main()
