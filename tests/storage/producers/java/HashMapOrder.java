import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.stream.Collectors;

/** Reads lines of keys that are put ("+ 1 2") or taken out ("- 1"), and prints all keys at "?". */
public class HashMapOrder {
    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in));
        var map = new HashMap<Long, Long>();
        var out = new StringBuilder();
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split(" ");
            if (words[0].equals("new")) {
                map = new HashMap<>();
            } else if (words[0].equals("?")) {
                out.append(map.keySet().stream().map(String::valueOf).collect(Collectors.joining(" ")));
                out.append('\n');
            } else {
                var keys = new java.util.ArrayList<Long>();
                for (int i = 1; i < words.length; i++) {
                    keys.add(Long.parseLong(words[i]));
                }
                if (words[0].equals("+")) {
                    for (Long key : keys) {
                        map.put(key, key);
                    }
                } else {
                    map.keySet().removeAll(keys);
                }
            }
        }
        System.out.print(out);
    }
}
