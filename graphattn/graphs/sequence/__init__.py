"""Sequences: encoders, decoders, windows, documents, sparse transformers, cross-attention."""
