// Runs Kafka's command line tools one after the other in one JVM.
//
// A line is the class of a tool and its arguments, with tabs between. The answer to it is a line with
// the tool's status and the numbers of bytes that it printed and said on stderr, then these bytes.

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

public class Tools {
    static class Ended extends RuntimeException {
        Ended() {
            super(null, null, false, false);
        }
    }

    static final PrintStream NOBODY = new PrintStream(OutputStream.nullOutputStream());
    static Integer status;

    // The end of a tool, which would be that of all of them. Some take it for an error, say so, and
    // end once more: the first time counts.
    static void end(int with) {
        if (status == null) {
            status = with;
            System.out.flush();
            System.err.flush();
            System.setOut(NOBODY);
            System.setErr(NOBODY);
        }
        throw new Ended();
    }

    static int run(String[] words) throws ReflectiveOperationException {
        status = null;
        try {
            Class.forName(words[0])
                .getMethod("main", String[].class)
                .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
        } catch (InvocationTargetException problem) {
            if (status == null) {
                problem.getCause().printStackTrace();
                return 1;
            }
        }
        return status == null ? 0 : status;
    }

    // Kafka's Exit has been in another package since 4.4.
    static void catchEnds() throws ReflectiveOperationException {
        Class<?> exit;
        try {
            exit = Class.forName("org.apache.kafka.common.utils.Exit");
        } catch (ClassNotFoundException moved) {
            exit = Class.forName("org.apache.kafka.common.utils.internals.Exit");
        }
        for (Method method : exit.getMethods()) {
            String name = method.getName();
            if (!name.matches("set(Exit|Halt)Procedure|setShutdownHookAdder")) continue;
            Class<?> type = method.getParameterTypes()[0];
            method.invoke(null, Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
                (proxy, called, with) -> {
                    if (name.endsWith("Procedure")) end((int) with[0]);
                    return null;
                }));
        }
    }

    public static void main(String[] arguments) throws Exception {
        catchEnds();
        PrintStream own = System.out;
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            System.setOut(new PrintStream(printed, true));
            System.setErr(new PrintStream(said, true));
            int last = run(line.split("\t"));
            System.out.flush();
            System.err.flush();
            own.println(last + " " + printed.size() + " " + said.size());
            own.write(printed.toByteArray());
            own.write(said.toByteArray());
            own.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
