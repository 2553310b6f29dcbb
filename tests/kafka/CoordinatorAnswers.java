// What a transaction coordinator of Kafka answers and writes: its own class, with a log that is a list.
//
// A case is a line of commands with ; between them, and gets a line of answers with ; between them.
//   version N                          finalized transaction.version
//   now MS                             the clock
//   next ID                            the producer id that is given out next
//   load ID LAST_EPOCH HEX             the newest record of a transactional id
//   init ID TIMEOUT [PRODUCER_ID EPOCH]
//   add ID PRODUCER_ID EPOCH CLIENT_VERSION TOPIC:PARTITION...
//   end ID PRODUCER_ID EPOCH CLIENT_VERSION commit|abort
//   finish                             what is done when the log was loaded: prepared ones complete
//   timeouts, expire
// An answer is "ERROR PRODUCER_ID EPOCH" and the values of the records that were written, in hex.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import kafka.coordinator.transaction.CoordinatorEpochAndTxnMetadata;
import kafka.coordinator.transaction.TransactionConfig;
import kafka.coordinator.transaction.TransactionCoordinator;
import kafka.coordinator.transaction.TransactionMarkerChannelManager;
import kafka.coordinator.transaction.TransactionStateManager;
import kafka.coordinator.transaction.TransactionalIdAndProducerIdEpoch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.ProducerIdAndEpoch;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.transaction.ProducerIdManager;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.common.TransactionVersion;
import scala.Function0;
import scala.Function1;
import scala.Function3;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;
import scala.util.Either;
import scala.util.Right;

public class CoordinatorAnswers {
    static final int MAX_TIMEOUT_MS = 900_000;
    static final int ID_EXPIRATION_MS = 604_800_000;
    static final TransactionConfig CONFIG = new TransactionConfig(
        ID_EXPIRATION_MS, MAX_TIMEOUT_MS, 50, (short) 1, 104_857_600, 5_242_880, 1, 10_000,
        3_600_000, false, 30_000);

    static TransactionVersion version;
    static long nowMs;
    static long nextProducerId;
    static TreeMap<String, TransactionMetadata> ids;
    static List<String> written;

    /** The log and the cache of ids; made without its constructor, which wants a whole broker. */
    static class State extends TransactionStateManager {
        State() {
            super(0, null, null, null, CONFIG, null, null);
        }

        @Override
        public TransactionVersion transactionVersionLevel() {
            return version;
        }

        @Override
        public boolean isTransaction2pcEnabled() {
            return false;
        }

        @Override
        public boolean validateTransactionTimeoutMs(boolean isTwoPhase, int timeoutMs) {
            return isTwoPhase || timeoutMs <= MAX_TIMEOUT_MS && timeoutMs > 0;
        }

        @Override
        public int partitionFor(String id) {
            return 0;
        }

        @Override
        public Either<Errors, Option<CoordinatorEpochAndTxnMetadata>> getTransactionState(String id) {
            TransactionMetadata found = ids.get(id);
            return new Right<>(Option.apply(
                found == null ? null : new CoordinatorEpochAndTxnMetadata(0, found)));
        }

        @Override
        public Either<Errors, CoordinatorEpochAndTxnMetadata> putTransactionStateIfNotExists(
                TransactionMetadata metadata) {
            ids.putIfAbsent(metadata.transactionalId(), metadata);
            return new Right<>(
                new CoordinatorEpochAndTxnMetadata(0, ids.get(metadata.transactionalId())));
        }

        @Override
        public void appendTransactionToLog(
                String id, int coordinatorEpoch, TxnTransitMetadata next,
                Function1<Errors, BoxedUnit> answer, Function1<Errors, Object> retryOnError,
                RequestLocal requestLocal) {
            write(ids.get(id), next);
            answer.apply(Errors.NONE);
        }

        @Override
        public Function1<Errors, Object> appendTransactionToLog$default$5() {
            return null;
        }

        @Override
        public scala.collection.Iterable<TransactionalIdAndProducerIdEpoch> timedOutTransactions() {
            List<TransactionalIdAndProducerIdEpoch> late = new ArrayList<>();
            ids.forEach((id, each) -> {
                if (isLate(id, each)) {
                    late.add(new TransactionalIdAndProducerIdEpoch(
                        id, each.producerId(), each.producerEpoch()));
                }
            });
            return CollectionConverters.asScala(late);
        }
    }

    /** The filter of `timedOutTransactions`. */
    static boolean isLate(String id, TransactionMetadata metadata) {
        try {
            Method filter = TransactionStateManager.class.getMethod(
                "$anonfun$timedOutTransactions$3", long.class, Tuple2.class);
            return (boolean) filter.invoke(null, nowMs, new Tuple2<>(id, metadata));
        } catch (ReflectiveOperationException problem) {
            throw new IllegalStateException(problem);
        }
    }

    /** Has every marker written at once. */
    static class Markers extends TransactionMarkerChannelManager {
        Markers() {
            super(null, null, null, null, null);
        }

        @Override
        public void addTxnMarkersToSend(
                int coordinatorEpoch, TransactionResult result, TransactionMetadata metadata,
                TxnTransitMetadata next) {
            write(metadata, next);
        }
    }

    static void write(TransactionMetadata metadata, TxnTransitMetadata next) {
        written.add(HexFormat.of().formatHex(TransactionLog.valueToBytes(next, version)));
        metadata.completeTransitionTo(next);
    }

    @SuppressWarnings("unchecked")
    static <T> T unmade(Class<T> type) throws Exception {
        Class<?> unsafe = Class.forName("sun.misc.Unsafe");
        Field field = unsafe.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return (T) unsafe.getMethod("allocateInstance", Class.class).invoke(field.get(null), type);
    }

    @SuppressWarnings("unchecked")
    static <T> T standIn(Class<T> type, Function0<Object> answer) {
        return (T) Proxy.newProxyInstance(
            type.getClassLoader(), new Class<?>[] {type}, (proxy, method, arguments) ->
                method.getReturnType() == long.class ? answer.apply() : null);
    }

    static TransactionVersion clientVersion(String level) {
        return TransactionVersion.fromFeatureLevel(Short.parseShort(level));
    }

    static String command(TransactionCoordinator coordinator, State state, String[] words)
            throws Exception {
        String[] answer = {"-"};
        String id = words.length > 1 ? words[1] : null;
        switch (words[0]) {
            case "version" -> version = clientVersion(words[1]);
            case "now" -> nowMs = Long.parseLong(words[1]);
            case "next" -> nextProducerId = Long.parseLong(words[1]);
            case "load" -> {
                TransactionLog.TxnRecord record = (TransactionLog.TxnRecord) TransactionLog.read(
                    ByteBuffer.wrap(TransactionLog.keyToBytes(id)),
                    ByteBuffer.wrap(HexFormat.of().parseHex(words[3])));
                record.metadata().setLastProducerEpoch(Short.parseShort(words[2]));
                ids.put(id, record.metadata());
            }
            case "init" -> {
                Option<ProducerIdAndEpoch> expected = words.length == 3
                    ? Option.empty()
                    : Option.apply(new ProducerIdAndEpoch(
                        Long.parseLong(words[3]), Short.parseShort(words[4])));
                coordinator.handleInitProducerId(
                    id, Integer.parseInt(words[2]), false, false, expected,
                    result -> {
                        answer[0] = result.error() + " " + result.producerId() + " "
                            + result.producerEpoch();
                        return BoxedUnit.UNIT;
                    },
                    RequestLocal.noCaching());
            }
            case "add" -> {
                Set<TopicPartition> added = new HashSet<>();
                for (String each : Arrays.copyOfRange(words, 5, words.length)) {
                    String[] parts = each.split(":");
                    added.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
                }
                coordinator.handleAddPartitionsToTransaction(
                    id, Long.parseLong(words[2]), Short.parseShort(words[3]), added,
                    error -> {
                        answer[0] = error + " -1 -1";
                        return BoxedUnit.UNIT;
                    },
                    clientVersion(words[4]), RequestLocal.noCaching());
            }
            case "end" -> {
                Function3<Errors, Object, Object, BoxedUnit> callback = (error, producerId, epoch) -> {
                    answer[0] = error + " " + producerId + " " + epoch;
                    return BoxedUnit.UNIT;
                };
                coordinator.handleEndTransaction(
                    id, Long.parseLong(words[2]), Short.parseShort(words[3]),
                    words[5].equals("commit") ? TransactionResult.COMMIT : TransactionResult.ABORT,
                    clientVersion(words[4]), callback, RequestLocal.noCaching());
            }
            case "finish" -> {
                for (TransactionMetadata each : ids.values()) {
                    if (each.state() == TransactionState.PREPARE_COMMIT
                            || each.state() == TransactionState.PREPARE_ABORT) {
                        write(each, each.prepareComplete(nowMs));
                    }
                }
            }
            case "timeouts" -> coordinator.abortTimedOutTransactions(
                late -> (error, producerId, epoch) -> {
                    answer[0] = error + " " + producerId + " " + epoch;
                    return BoxedUnit.UNIT;
                });
            case "expire" -> {
                Method shouldExpire = TransactionStateManager.class.getDeclaredMethod(
                    "shouldExpire", TransactionMetadata.class, long.class);
                shouldExpire.setAccessible(true);
                for (TransactionMetadata each : List.copyOf(ids.values())) {
                    if ((boolean) shouldExpire.invoke(state, each, nowMs)) {
                        ids.remove(each.transactionalId());
                        written.add("null");
                    }
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
        return answer[0];
    }

    public static void main(String[] arguments) throws Exception {
        State state = unmade(State.class);
        Field config = TransactionStateManager.class.getDeclaredField("config");
        config.setAccessible(true);
        config.set(state, CONFIG);
        Function0<ProducerIdManager> newIds =
            () -> standIn(ProducerIdManager.class, () -> nextProducerId++);
        TransactionCoordinator coordinator = new TransactionCoordinator(
            CONFIG, null, newIds, state, unmade(Markers.class),
            standIn(Time.class, () -> nowMs), new LogContext(""));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ids = new TreeMap<>();
            List<String> found = new ArrayList<>();
            for (String each : line.split(";")) {
                written = new ArrayList<>();
                String answer;
                try {
                    answer = command(coordinator, state, each.trim().split(" "));
                } catch (IllegalArgumentException | IllegalStateException problem) {
                    // The thread that answers requests says so; its lock is held by nobody.
                    answer = Errors.UNKNOWN_SERVER_ERROR + " -1 -1";
                }
                found.add((answer + " " + String.join(" ", written)).trim());
            }
            answers.append(String.join(";", found)).append('\n');
        }
        System.out.print(answers);
    }
}
