"""The commands, one module for each group; importing a module adds its commands to the program.

A command asks the Python client. It must never write to a stream by itself, decide an exit code
by the text of an error, or import gRPC before it calls.
"""
