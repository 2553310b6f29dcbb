// What a release of Kafka says of itself by its classes, for tests/kafka/kafka_diff.py: a line each,
// `KIND NAME VALUE`. A class that is not there is left out.
//   java -cp LIBS/* KafkaFacts.java
import java.lang.reflect.Method;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

public class KafkaFacts {
    interface Part {
        void tell() throws Exception;
    }

    static void part(Part part) throws Exception {
        try {
            part.tell();
        } catch (ClassNotFoundException | NoSuchMethodException missing) {
            System.out.println("missing " + missing.getMessage() + " -");
        }
    }

    static Object call(Object target, String name) throws Exception {
        Method method = target.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(target);
    }

    static void names(String kind, String type, String method) throws Exception {
        part(() -> {
            for (Object each : Class.forName(type).getEnumConstants()) {
                Object number = method.isEmpty() ? ((Enum<?>) each).ordinal() : call(each, method);
                System.out.println(kind + " " + ((Enum<?>) each).name() + " " + number);
            }
        });
    }

    public static void main(String[] arguments) throws Exception {
        part(() -> {
            for (Object each : Class.forName("org.apache.kafka.server.common.MetadataVersion").getEnumConstants())
                if ((boolean) call(each, "isProduction"))
                    System.out.println("level metadata.version " + call(each, "featureLevel"));
        });
        part(() -> {
            for (Object each : Class.forName("org.apache.kafka.server.common.Feature").getEnumConstants())
                System.out.println("level " + call(each, "featureName") + " " + call(each, "latestProduction"));
        });
        part(() -> {
            Object found = Class.forName("org.apache.kafka.storage.internals.log.LogConfig")
                .getMethod("configDefCopy").invoke(null);
            for (Map.Entry<String, ConfigDef.ConfigKey> each : new TreeMap<>(((ConfigDef) found).configKeys()).entrySet())
                if (!each.getValue().internalConfig)
                    System.out.println("topic-setting " + each.getKey() + " " + text(each.getValue().defaultValue));
        });
        names("status", "org.apache.kafka.coordinator.transaction.TransactionState", "id");
        names("metadata-record", "org.apache.kafka.common.metadata.MetadataRecordType", "id");
        names("group-record", "org.apache.kafka.coordinator.group.generated.CoordinatorRecordType", "id");
        names("share-record", "org.apache.kafka.coordinator.share.generated.CoordinatorRecordType", "id");
        names("control-record", "org.apache.kafka.common.record.internal.ControlRecordType", "type");
        names("control-record", "org.apache.kafka.common.record.ControlRecordType", "type");
        names("delivery-state", "org.apache.kafka.server.share.fetch.RecordState", "id");
    }

    static String text(Object value) {
        return value instanceof java.util.List<?> list
            ? String.join(",", list.stream().map(String::valueOf).toList()) : String.valueOf(value);
    }
}
