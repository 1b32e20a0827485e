"""The course of a study: its trials as processes, and what they leave on disk."""
