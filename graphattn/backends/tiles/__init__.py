"""Batched dense attention on blocks of targets, each with its sources."""
