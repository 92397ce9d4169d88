"""What takes longer than a moment on a running query."""
