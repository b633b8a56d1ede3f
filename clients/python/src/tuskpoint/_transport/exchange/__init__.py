"""The `Exchange` streams of a client, which carry its saves, writes and loads in batches.

`lanes` decides which call is sent next, again after a break, or not at all. `frames` turns calls
into bytes. `streams` has the threads, the waiting callers and the connection. Must not know what a
call means, nor retry a call that was answered: `calls` retries.
"""
