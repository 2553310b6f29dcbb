// Loads partition directories as a broker does at its start, one after the other, and closes them as it
// does at a clean stop. An exception that would end the broker is printed, and the next one is loaded.
//
// Arguments: the settings of all logs, name=value, then "--", then for each directory: its path, log
// start offset, recovery point, and "clean" or "crash". Prints a line for each: path, log end offset,
// log start offset, last stable offset, "-"; or path, "-", "-", "-", what it died of.

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class LoadLogs {
    /** Keeps what is to be done later; what is to be done again and again is left out. */
    static class Later implements Scheduler {
        static final ScheduledExecutorService NEVER = Executors.newScheduledThreadPool(1);

        final List<Runnable> tasks = new ArrayList<>();

        public void startup() { }

        public void shutdown() { }

        public void resizeThreadPool(int size) { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) {
                tasks.add(task);
            }
            return NEVER.schedule(() -> { }, 1, TimeUnit.DAYS);
        }

        void run() {
            while (!tasks.isEmpty()) {
                tasks.remove(0).run();
            }
        }
    }

    static String load(Map<String, String> settings, String[] each) {
        Later later = new Later();
        try (BrokerTopicStats stats = new BrokerTopicStats()) {
            UnifiedLog log = UnifiedLog.create(
                new File(each[0]), new LogConfig(settings), Long.parseLong(each[1]),
                Long.parseLong(each[2]), later, stats, Time.SYSTEM, 900_000,
                new ProducerStateManagerConfig(86_400_000, true), 600_000,
                new LogDirFailureChannel(1), each[3].equals("clean"), Optional.empty());
            later.run();
            log.updateHighWatermark(log.logEndOffset());
            String found = log.logEndOffset() + "\t" + log.logStartOffset() + "\t"
                + log.lastStableOffset() + "\t-";
            log.flush(true);
            log.close();
            later.run();
            return found;
        } catch (Throwable error) {
            return "-\t-\t-\t" + String.valueOf(error).replaceAll("\\s+", " ");
        }
    }

    public static void main(String[] arguments) {
        int end = Arrays.asList(arguments).indexOf("--");
        Map<String, String> settings = new HashMap<>();
        for (String each : Arrays.copyOf(arguments, end)) {
            settings.put(each.split("=")[0], each.split("=")[1]);
        }
        for (int at = end + 1; at < arguments.length; at += 4) {
            String[] each = Arrays.copyOfRange(arguments, at, at + 4);
            System.out.println(each[0] + "\t" + load(settings, each));
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
