"""`python -m lapwing` is the command `lapwing`."""

from lapwing.cli import main

if __name__ == "__main__":
    main()
