"""What is measured, as data: seeded input and the result that every contender has to reach.

Nothing here knows an engine; every contender imports it in an environment of its own, which has
numpy and pyarrow.
"""
