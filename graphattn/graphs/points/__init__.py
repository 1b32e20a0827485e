"""Points of any dimension."""
