"""`python -P -m upcall`, the command line.

Without ``-P`` Python imports from the current folder first, in which a coder may have put a ``json.py``. That ends
here, before the first import that counts; only a folder ``upcall`` there would be found before this.
"""

import sys

if not sys.flags.safe_path:
    del sys.path[0]

from upcall.ui.cli.main import main

if __name__ == "__main__":
    main()
