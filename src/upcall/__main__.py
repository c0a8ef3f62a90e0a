"""`python -m upcall`, the command line."""

from upcall.ui.cli.main import main

if __name__ == "__main__":
    main()
