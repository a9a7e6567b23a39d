"""Kafka, on librdkafka: a source that plans offset ranges, and sinks. Extra `kafka`."""
