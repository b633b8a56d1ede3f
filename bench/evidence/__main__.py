"""`python -m bench.evidence`: see the package."""

from __future__ import annotations

import sys

from bench.evidence.pages import main

if __name__ == "__main__":
    sys.exit(main())
