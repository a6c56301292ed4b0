"""RoboCasa as its adapter calls it, without a simulator: kitchens are numbers that count steps."""
