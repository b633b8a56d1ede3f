"""The measures, one module each. Each has a `TITLE` and a coroutine `measure`."""
