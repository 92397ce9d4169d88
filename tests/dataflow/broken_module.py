"""A user's module that fails while it is imported."""

raise RuntimeError("broken")
