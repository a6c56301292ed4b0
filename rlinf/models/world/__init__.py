"""World models: networks that imagine what cameras show after actions. ``env_type: world_model`` steps in them."""
