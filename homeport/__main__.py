"""Entry point of ``python -m homeport``, which runs the command line."""

import sys

from homeport import main

if __name__ == "__main__":
    sys.exit(main())
