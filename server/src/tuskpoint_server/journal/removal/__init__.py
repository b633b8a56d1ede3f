"""Removing checkpoints and threads, and what nothing needs any more."""
