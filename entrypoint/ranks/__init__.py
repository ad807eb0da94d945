"""Programs and ranks of this node: started, supervised, reported, stopped."""
