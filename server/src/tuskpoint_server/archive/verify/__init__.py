"""Comparing journal and blobs, and repairing damaged values from certified blobs.

It must not call a thread verified whose blobs were not read, or repair from bytes whose hash was
not checked.
"""
