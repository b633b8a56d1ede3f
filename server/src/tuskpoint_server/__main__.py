"""`python -m tuskpoint_server` runs the server."""

import sys

from .app import main

sys.exit(main())
