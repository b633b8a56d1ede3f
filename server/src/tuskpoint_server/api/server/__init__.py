"""The gRPC server: port, options, health and TLS. It must not depend on the meaning of a call."""
