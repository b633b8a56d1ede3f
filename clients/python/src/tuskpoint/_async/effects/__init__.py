"""Effects: the calls, and the block that does work once."""
