"""Workers that train the policy."""
