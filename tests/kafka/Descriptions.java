// Keeps the topologies of streams groups in memory, but for groups whose name ends with "-refused":
// a plugin of KIP-1331 for tests/kafka/capture/newest.py.
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescription;
import org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin;
import org.apache.kafka.coordinator.group.api.streams.StreamsTopologyDescriptionPermanentFailureException;

public class Descriptions implements StreamsGroupTopologyDescriptionPlugin {
    private final Map<String, StreamsGroupTopologyDescription> known = new ConcurrentHashMap<>();

    public void configure(Map<String, ?> configs) {
    }

    public void close() {
    }

    public CompletableFuture<Void> setTopology(
        String group, int epoch, StreamsGroupTopologyDescription description
    ) {
        if (group.endsWith("-refused")) {
            return CompletableFuture.failedFuture(
                new StreamsTopologyDescriptionPermanentFailureException("refused")
            );
        }
        known.put(group, description);
        return CompletableFuture.completedFuture(null);
    }

    public CompletableFuture<Void> deleteTopology(String group) {
        known.remove(group);
        return CompletableFuture.completedFuture(null);
    }

    public CompletableFuture<StreamsGroupTopologyDescription> getTopology(String group, int epoch) {
        return CompletableFuture.completedFuture(known.get(group));
    }
}
