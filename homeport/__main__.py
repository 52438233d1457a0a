"""``python -m homeport``: the command line."""

import sys

from homeport import main

if __name__ == "__main__":
    sys.exit(main())
