"""Workers that compute with the actor's model and code, and never train it."""
