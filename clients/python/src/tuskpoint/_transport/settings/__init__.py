"""The settings of a client: target, TLS, token, and the times of its calls.

It reads arguments, environment variables and files, and refuses what is malformed. It must not open
a connection.
"""
