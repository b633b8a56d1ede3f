"""Effects: work in the outside world, recorded before the work and after it.

`core.effects` decides; here are the rows, and the calls. It must not decide by itself whether work
is done, and must not start a thread to record an outcome.
"""
