"""Files that earlier versions wrote, and what they must still mean."""
