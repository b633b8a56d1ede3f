"""`python -m tuskpoint.cli`, for where the program is not on the path."""

from __future__ import annotations

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
