"""A simulated Franka arm that lifts a cube, by MuJoCo."""
