"""How far each log is certified: what is to be stored, where it lies, what was evicted."""
