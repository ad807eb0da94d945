"""What the ranks of this node do: their steps, their stacks, and what libraries know of them."""
