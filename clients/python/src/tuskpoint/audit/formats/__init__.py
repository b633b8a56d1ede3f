"""Stored formats, written from docs/storage.md alone. Pure: no file, no network."""
