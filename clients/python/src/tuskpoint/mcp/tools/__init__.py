"""The tools, as functions whose first parameter is the client."""
