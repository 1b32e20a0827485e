"""Products and sums over edges: any attention with a product of query and key."""
