"""The activity of this node's ranks: their steps, their stacks, and what libraries know of them."""
