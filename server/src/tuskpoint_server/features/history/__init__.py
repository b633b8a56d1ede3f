"""The changes of threads in their order, for replays and watches.

It must not leave out a change without saying so.
"""
