"""Files read and written with care, and progress on a terminal: what every room may use."""
