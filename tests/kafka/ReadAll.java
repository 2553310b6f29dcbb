// Reads all that there is of all topics that are not internal, and prints a line a record.
//
// Arguments: where a broker is, then for each reading assign or subscribe, the isolation level and
// the group; a reading ends with an empty line. Columns, with tabs between: topic, partition, offset,
// kind of time, time, key, value (base64; "-": none), and name and value of each header. It needs no
// newer client than 2.8.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;

public class ReadAll {
    static final long WAIT_MS = 90_000;
    static final String BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer";

    static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    static String line(ConsumerRecord<byte[], byte[]> each) {
        List<String> columns = new ArrayList<>(List.of(
            each.topic(), "" + each.partition(), "" + each.offset(),
            each.timestampType().toString(), "" + each.timestamp(),
            text(each.key()), text(each.value())));
        for (Header header : each.headers()) {
            columns.add(text(header.key().getBytes(StandardCharsets.UTF_8)));
            columns.add(text(header.value()));
        }
        return String.join("\t", columns);
    }

    static boolean hasAll(
            KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> ends) {
        if (!consumer.assignment().equals(ends.keySet())) {
            return false;
        }
        return ends.entrySet().stream()
            .allMatch(each -> consumer.position(each.getKey()) >= each.getValue());
    }

    static String readAll(String bootstrap, String how, String isolation, String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("isolation.level", isolation);
        settings.put("auto.offset.reset", "earliest");
        settings.put("group.id", group);
        settings.put("key.deserializer", BYTES);
        settings.put("value.deserializer", BYTES);
        StringBuilder lines = new StringBuilder();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> all = new ArrayList<>();
            TreeSet<String> topics = new TreeSet<>();
            for (List<PartitionInfo> topic : consumer.listTopics().values()) {
                for (PartitionInfo each : topic) {
                    if (!each.topic().startsWith("__")) {
                        all.add(new TopicPartition(each.topic(), each.partition()));
                        topics.add(each.topic());
                    }
                }
            }
            Map<TopicPartition, Long> ends = consumer.endOffsets(all);
            if (how.equals("assign")) {
                consumer.assign(all);
            } else {
                consumer.subscribe(topics);
            }
            long untilMs = System.currentTimeMillis() + WAIT_MS;
            while (!hasAll(consumer, ends)) {
                if (System.currentTimeMillis() > untilMs) {
                    throw new IllegalStateException("not all was read in time");
                }
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    lines.append(line(each)).append('\n');
                }
            }
        }
        return lines.toString();
    }

    public static void main(String[] arguments) {
        for (int each = 1; each < arguments.length; each += 3) {
            System.out.println(readAll(
                arguments[0], arguments[each], arguments[each + 1], arguments[each + 2]));
        }
    }
}
