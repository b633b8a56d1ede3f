"""The measures, one module each. Every one has a `TITLE` and a coroutine `measure`."""
