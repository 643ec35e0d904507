"""What a fitted model says: of rows, of what comes next, of its own insides."""
