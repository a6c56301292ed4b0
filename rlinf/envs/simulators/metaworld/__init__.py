"""Meta-World: single tasks, MT10, MT50 and ML45, and its scripted policies."""
