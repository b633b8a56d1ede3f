"""The contract over HTTP, and the console: for browsers, scripts and programs without gRPC.

The Connect protocol (https://connectrpc.com/docs/protocol) and gRPC-Web come from the library
connectrpc, HTTP from uvicorn. Both use the same pipeline as gRPC: this package must not
depend on single methods, or decide anything about a call.
"""
