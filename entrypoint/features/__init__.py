"""What a job can do without. The core imports none of this: `cli` hands it in."""
