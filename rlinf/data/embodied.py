"""The messages of embodied RL under the path that models of users import them from; see ``rlinf.data.messages``."""

from rlinf.data.messages.embodied import ChunkStep, Observation, PolicyOutput, Trajectory

__all__ = ["ChunkStep", "Observation", "PolicyOutput", "Trajectory"]
