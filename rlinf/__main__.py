"""``python -m rlinf``: the ``rlinf`` command, where its script is not on the path."""

import sys

from rlinf.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
