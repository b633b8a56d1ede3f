"""Times of agents' steps, and the cost of steps for a server.

These measures run servers as processes. They must not import the server.
"""
