"""``python -m mlc_native``: the command line."""

import sys

from mlc_native.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
