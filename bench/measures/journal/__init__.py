"""What saves cost the journal: SQL statements, processor time, bytes; and a journal in PostgreSQL.

These measures must not wait for certification: saves end in the journal.
"""
