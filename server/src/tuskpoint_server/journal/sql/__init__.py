"""Tables, statements, and the two databases that run them: SQLite and PostgreSQL.

It must not know the meaning of a row for a thread or a call, keep state of threads, or decide the
moment of a commit (the writer in `journal.database` does).
"""
