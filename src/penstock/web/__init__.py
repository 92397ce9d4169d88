"""What people look at: the page of a run."""
