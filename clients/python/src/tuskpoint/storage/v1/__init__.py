"""Generated messages of the formats of stored bytes.

Written by ``make generate`` from proto/tuskpoint/storage; do not edit.
"""
