"""The demonstration: a card-payments job, a killed slot, and an independent recount."""
