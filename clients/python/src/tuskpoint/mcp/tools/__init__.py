"""Tools, as functions whose first parameter is the client."""
