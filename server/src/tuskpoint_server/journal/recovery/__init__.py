"""Filling an empty journal from stored records."""
