"""Whole journals: copied between databases, backed up, restored."""
