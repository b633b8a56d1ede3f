"""How calls reach a server: target, credentials, channels, deadlines, retries, observation.

It moves messages of the contract and turns their failures into the errors of `tuskpoint.errors`. It
must not know what a message means; `_messages` and the clients' methods do.
"""
