"""The handlers: publisher and aggregator as Walrus has them, and the control API of the emulator.

They must not listen on a port; `server` does.
"""
