"""Plain operations of torch: what they sum is the same bits in every run."""
