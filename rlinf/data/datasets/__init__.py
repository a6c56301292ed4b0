"""Datasets: recorded episodes to learn from offline; prompts and examples for language models."""
