"""The JobManager: supervision of slots, checkpoints and failover; knows no Spark."""
