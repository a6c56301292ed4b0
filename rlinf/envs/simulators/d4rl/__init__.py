"""D4RL's offline tasks: their scores, and the simulator they are evaluated in."""
