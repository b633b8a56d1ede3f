"""Types, rules and formats that need no database, network or clock.

Values, identities, digests, limits, JSON views and the table of errors: frozen dataclasses and
pure functions. The exception is `pacing`, which waits. Uses the contract's protobuf messages only
where they are a storage format (state, segment).

It must not import another package of the server, gRPC, SQL or HTTP, and never decodes the bytes of
an agent's value.
"""
