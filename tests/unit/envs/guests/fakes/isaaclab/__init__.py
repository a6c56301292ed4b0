"""Isaac Lab as its adapter calls it, without a simulator."""
