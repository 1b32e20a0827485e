"""Claims and how they are judged: fits, steps to a score, error rates."""
