"""The journal's database: its tables, its connections, its one writer and what a batch changes."""
