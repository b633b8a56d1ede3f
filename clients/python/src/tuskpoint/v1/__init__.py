"""The generated stubs of the contract, package ``tuskpoint.v1``.

Written by ``make generate`` from proto/tuskpoint/v1; do not edit. Messages are in ``*_pb2``, stubs
and servicers in ``*_pb2_grpc``.
"""
