"""Workers that run the policy on observations (embodied) or prompts."""
