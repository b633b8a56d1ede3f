"""Build, check and try the packages of a release."""
