"""Every setting of the server, and the parts of a server built as the settings say."""
