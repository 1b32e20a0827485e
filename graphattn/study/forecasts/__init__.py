"""What is known of a study before its trials: predictions, ceilings, plain methods."""
