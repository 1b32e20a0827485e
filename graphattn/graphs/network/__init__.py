"""Trees, networks, and graphs made of other structures."""
