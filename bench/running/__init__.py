"""What the measures run: servers, the peers beside them, and processes with agents.

Nothing here measures or compares.
"""
