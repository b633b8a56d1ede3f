"""Settings of a client: target, TLS, token, and timeouts of calls.

The package reads arguments, environment variables and files, and refuses malformed settings. Must
not open a connection.
"""
