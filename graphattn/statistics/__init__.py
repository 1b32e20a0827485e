"""Statistics of paired runs and shapes: intervals, tests, groups."""
