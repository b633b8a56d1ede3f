"""Comparisons of what servers show after a crash with what they acknowledged before.

It must not change anything on a server, or trust what the server says about itself.
"""
