"""The TuskPoint service."""
