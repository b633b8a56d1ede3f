"""Comparison of journal and blobs, and repair of damaged values from certified blobs.

The package must not call a thread verified whose blobs were not read, or repair from bytes whose
hash was not checked.
"""
