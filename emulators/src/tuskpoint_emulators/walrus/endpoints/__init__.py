"""The handlers: Walrus's publisher and aggregator, and the control API of the emulator.

They must not listen on a port; `server` does.
"""
