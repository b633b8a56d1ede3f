"""Replays and watches: the changes of threads in order.

It must not leave out a change without saying so.
"""
