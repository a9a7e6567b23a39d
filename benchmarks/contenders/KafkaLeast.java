import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;

/**
 * Workload k in Flink's own language: the job of kafka_flink.py, from topic to topic, in a cluster
 * of this process, until it is killed.
 *
 * <p>Usage: KafkaLeast ADDRESS INPUT OUTPUT GUARANTEE TRANSACTION_MS [KEY=VALUE ...], the last ones
 * of Flink's configuration.
 */
public final class KafkaLeast {
    private static final int VALUE_BYTES = 100;

    /** Every record with the least value of its key so far. */
    static final class Least
            extends RichFlatMapFunction<Tuple2<Long, Long>, Tuple3<Long, Long, Long>> {
        private transient ValueState<Long> least;

        @Override
        public void open(OpenContext context) {
            least = getRuntimeContext().getState(new ValueStateDescriptor<>("least", Types.LONG));
        }

        @Override
        public void flatMap(Tuple2<Long, Long> row, Collector<Tuple3<Long, Long, Long>> out)
                throws Exception {
            Long found = least.value();
            if (found == null || row.f1 < found) {
                found = row.f1;
                least.update(found);
            }
            out.collect(Tuple3.of(row.f0, row.f1, found));
        }
    }

    static Tuple2<Long, Long> numbers(String value) {
        String[] fields = value.split(",", 3);
        return Tuple2.of(Long.parseLong(fields[0]), Long.parseLong(fields[1]));
    }

    static String text(Tuple3<Long, Long, Long> row) {
        String numbers = row.f0 + "," + row.f1 + "," + row.f2 + ",";
        return numbers + "x".repeat(VALUE_BYTES - numbers.length());
    }

    public static void main(String[] words) throws Exception {
        Configuration configuration = new Configuration();
        for (int i = 5; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            configuration.setString(pair[0], pair[1]);
        }
        KafkaSource<String> source =
                KafkaSource.<String>builder()
                        .setBootstrapServers(words[0])
                        .setTopics(words[1])
                        .setGroupId(words[2])
                        .setStartingOffsets(OffsetsInitializer.earliest())
                        .setValueOnlyDeserializer(new SimpleStringSchema())
                        .build();
        Properties properties = new Properties();
        properties.setProperty("transaction.timeout.ms", words[4]);
        KafkaSink<String> sink =
                KafkaSink.<String>builder()
                        .setBootstrapServers(words[0])
                        .setRecordSerializer(
                                KafkaRecordSerializationSchema.builder()
                                        .setTopic(words[2])
                                        .setValueSerializationSchema(new SimpleStringSchema())
                                        .build())
                        .setDeliveryGuarantee(DeliveryGuarantee.valueOf(words[3]))
                        .setTransactionalIdPrefix(words[2])
                        .setKafkaProducerConfig(properties)
                        .build();
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "input")
                .map(KafkaLeast::numbers)
                .returns(Types.TUPLE(Types.LONG, Types.LONG))
                .keyBy(row -> row.f0, Types.LONG)
                .flatMap(new Least())
                .map(KafkaLeast::text)
                .returns(Types.STRING)
                .sinkTo(sink);
        env.execute("k");
    }
}
