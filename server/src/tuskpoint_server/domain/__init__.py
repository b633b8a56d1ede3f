"""The words of the service and the rules that hold without any machinery.

Values, identities, digests, storage formats and the one table of errors. Pure
functions and frozen dataclasses: no I/O, no clock, no randomness that a caller
does not pass in. Imports none of the other packages, and neither grpc nor SQL nor
HTTP. It uses the contract's protobuf messages only where they are a storage
format (state, segment). It never decodes the bytes of an agent's value.
"""
