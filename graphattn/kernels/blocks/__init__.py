"""The block kernel: a block of targets in the lanes of vectors, its sources one after another."""
