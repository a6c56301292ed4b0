"""robosuite: its tasks with images and state, and a scripted policy for ``Lift``."""
