"""Connectors of PyFlink that Weir leaves to Spark, and what to use instead of their names."""

from __future__ import annotations

from weir.common._absent import INTERNAL, JAVA


def _reads(source: str, whose: str) -> str:
    return (
        "reads with a connector of Flink: use env.from_dataframe("
        f"spark.readStream.format({source!r})…), with {whose} connector for Spark"
    )


def _writes(sink: str) -> str:
    return (
        "writes with a connector of Flink: use stream.foreach_batch() and Spark's writer for "
        f"{sink!r}"
    )


PULSAR = {
    "PulsarSource PulsarSourceBuilder StartCursor StopCursor RangeGenerator "
    "PulsarDeserializationSchema SubscriptionType": _reads("pulsar", "StreamNative's"),
    "PulsarSink PulsarSinkBuilder PulsarSerializationSchema MessageDelayer "
    "TopicRoutingMode": _writes("pulsar"),
}
KINESIS = {
    "FlinkKinesisConsumer KinesisShardAssigner KinesisDeserializationSchema "
    "WatermarkTracker": _reads("aws-kinesis", "AWS'"),
    "KinesisStreamsSink KinesisStreamsSinkBuilder KinesisFirehoseSink KinesisFirehoseSinkBuilder "
    "PartitionKeyGenerator": _writes("aws-kinesis"),
}
ELASTICSEARCH = {
    "ElasticsearchSink Elasticsearch6SinkBuilder Elasticsearch7SinkBuilder "
    "ElasticsearchSinkBuilderBase ElasticsearchEmitter "
    "FlushBackoffType": _writes("org.elasticsearch.spark.sql"),
}
CASSANDRA = {
    "CassandraSink CassandraCommitter CassandraFailureHandler ClusterBuilder ConsistencyLevel "
    "MapperOptions": _writes("org.apache.spark.sql.cassandra"),
}
RABBITMQ = {
    "RMQSource": "has no counterpart in Spark: read the queue with a SourceFunction of your own",
    "RMQSink RMQConnectionConfig": "has no counterpart in Spark: publish in "
    "stream.foreach_batch(), or with a TwoPhaseCommitSinkFunction of your own",
}
HYBRID = {
    "HybridSource HybridSourceBuilder": "switches between connectors of Flink: union() two "
    "streams, env.from_dataframe(spark.read…) of what is there and "
    "env.from_dataframe(spark.readStream…) of what comes",
}
DYNAMIC_KAFKA = {
    "DynamicKafkaSource DynamicKafkaSourceBuilder KafkaMetadataService "
    "KafkaRecordDeserializationSchema KafkaStreamSetSubscriber KafkaStreamSubscriber "
    "SingleClusterTopicMetadataService "
    "StreamPatternSubscriber": "finds clusters and topics while it runs: union() a source of each "
    "cluster; of one cluster, Spark's option subscribePattern finds new topics",
}
FILES = {
    "FileEnumeratorProvider FileSplitAssignerProvider": f"{JAVA}: Spark lists the files and "
    "hands them out",
}
KAFKA = {"FlinkKafkaConsumerBase FlinkKafkaProducerBase": INTERNAL}
