// A streams group (KIP-1071) for tests/kafka/capture/newest.py:
//   java -cp LIBS/* StreamsGroup.java BOOTSTRAP GROUP FROM TO STATE_DIR INSTANCE
// counts the records of FROM by key into TO; "running" on its output when it has tasks. It ends
// when its input does, and leaves the group; killed, its members stay.
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Produced;

public class StreamsGroup {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("client.id", arguments[5]);
        settings.put("state.dir", arguments[4]);
        settings.put("group.protocol", "streams");
        settings.put("commit.interval.ms", "200");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        settings.put("auto.offset.reset", "earliest");
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2]).groupByKey().count().toStream()
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) System.out.println("running");
        });
        streams.start();
        System.in.read();
        streams.close();
    }
}
