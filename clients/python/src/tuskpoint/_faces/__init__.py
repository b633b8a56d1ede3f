"""The methods of `Client` and `AsyncClient`, one module per noun.

Each module has the same methods twice: blocking, and to be awaited. What they share (requests,
records, decisions) is elsewhere and does no I/O, so that both stay thin.
"""
