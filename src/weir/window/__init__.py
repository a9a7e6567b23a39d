"""Windows as values: what they are, which a record gets, when they fire; without effects."""
