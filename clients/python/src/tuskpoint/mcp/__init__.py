"""An MCP server: the checkpoints of TuskPoint as tools for AI agents and their applications.

`tuskpoint mcp` runs it. `server` makes it from an `AsyncClient`, `tools` has the tools, `results`
their results, and `http` what serves it on a socket. All of it imports the package `mcp`, so
nothing outside of this package imports it before it is needed.
"""
