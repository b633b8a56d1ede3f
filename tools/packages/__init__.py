"""Build, check and try the packages that a release consists of."""
