"""Tables, statements, and the two databases that run them: SQLite and PostgreSQL.

It must not know what a row means to a thread or a call, hold state of threads, or decide when
something is committed (the writer in `journal.database` does).
"""
