"""The commands, one module for each group; importing a module adds its commands to the program.

A command calls the Python client. Must never write to a stream directly, decide an exit code by
the text of an error, or import gRPC before a call.
"""
