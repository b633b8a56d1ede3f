"""The gRPC server: its port, its options, health and TLS. It must not know what a call means."""
