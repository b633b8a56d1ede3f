"""The contract over HTTP, and the console: for browsers, scripts and whoever has no gRPC.

The Connect protocol (https://connectrpc.com/docs/protocol) and gRPC-Web come from the library
connectrpc, HTTP from uvicorn. Both end in the same pipeline as gRPC: this package knows no method,
and must not decide anything about a call.
"""
