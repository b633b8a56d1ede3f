"""The measured programs: servers, peers, and processes with agents.

Nothing here measures or compares.
"""
