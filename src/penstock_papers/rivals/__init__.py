"""What others do, for comparison, under the same rules as ours."""
