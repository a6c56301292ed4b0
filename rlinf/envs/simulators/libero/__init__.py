"""LIBERO: its suites, published starts and success, its assets, and a scripted policy."""
