"""Workers that run the actor's model and code, and never train it."""
