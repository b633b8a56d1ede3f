"""What an agent waits for at each step, and what the steps of agents take of a server.

These measures run servers as processes. They must not import the server.
"""
