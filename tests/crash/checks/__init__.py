"""Comparisons of a server's state after a crash with the acknowledgements before it.

It must not change anything on a server, or trust a server's statements about itself.
"""
