"""Who may call, and how much: accounts, signatures, windows of points.

It must not know what a call means.
"""
