"""The start of a server: checks, listeners, and messages to the operator.

Only the commands that serve import it, and `config --check`. It must not build a part of the
server.
"""
