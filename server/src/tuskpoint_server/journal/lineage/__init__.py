"""Making checkpoints from others, and which came from which."""
