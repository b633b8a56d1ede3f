"""Costs of saves in the journal: SQL statements, processor time, bytes; PostgreSQL too.

These measures must not wait for certification: saves end in the journal.
"""
