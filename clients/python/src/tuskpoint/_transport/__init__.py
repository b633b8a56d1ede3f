"""Transport of calls to a server: target, credentials, channels, deadlines, retries, observation.

The package moves messages of the contract and turns failures into the errors of
`tuskpoint.errors`. Must not know what a message means; `_messages` and the clients' methods do.
"""
