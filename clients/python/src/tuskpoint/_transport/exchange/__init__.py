"""The `Exchange` streams of a client, which carry its saves, writes and loads in batches.

`lanes` decides what is sent next, again after a break, or not at all; `frames` turns it into bytes;
`streams` has the threads, the waiting callers and the connection. It must not know what a call
means, nor retry a call that was answered: that is the part of `calls`.
"""
