"""The pages of the repository as a site, with references of the Python client and the contract."""
