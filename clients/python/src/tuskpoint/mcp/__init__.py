"""An MCP server: the checkpoints of TuskPoint as tools for AI agents and their applications.

`tuskpoint mcp` runs the server. `server` builds it from an `AsyncClient`, `tools` has the tools,
`results` their results, and `http` serves it on a socket. These modules import the package `mcp`,
so code outside of this package imports them only at first use.
"""
