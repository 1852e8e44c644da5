"""`python -m ccnn NAME`: the same as `ccnn NAME`."""
from ccnn.cli import main

if __name__ == "__main__":
    main()
