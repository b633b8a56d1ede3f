# Written by `make sync` from _async/effects/__init__.py; do not edit.
"""Effects: the calls, and the block that does work once."""
