import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.Deflater;
import java.util.zip.Inflater;

/**
 * Java at work: the compiler (this file is started as source), threads, direct buffers and zlib, which take their memory by malloc.
 * Prints one line; the test `java` in tests/tests/programs.rs knows what it must be.
 */
public class Work {
    public static void main(String[] arguments) throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        List<Future<byte[]>> parts = new ArrayList<>();
        for (int seed = 0; seed < 4; seed++) {
            int own = seed;
            parts.add(pool.submit(() -> work(own)));
        }
        var whole = MessageDigest.getInstance("SHA-256");
        for (var part : parts) whole.update(part.get());
        pool.shutdown();
        System.out.println(HexFormat.of().formatHex(whole.digest()).substring(0, 16));
    }

    /** Words counted, printed into direct buffers, packed and unpacked; a digest of them. */
    static byte[] work(int seed) throws Exception {
        var digest = MessageDigest.getInstance("SHA-256");
        for (int turn = 0; turn < 12; turn++) {
            int state = seed * 1000 + turn;
            var count = new TreeMap<String, Integer>();
            for (int i = 0; i < 20000; i++) {
                state = state * 1664525 + 1013904223;
                count.merge("w" + (state >>> 20), 1, Integer::sum);
            }
            byte[] text = count.toString().getBytes("UTF-8");
            digest.update(throughZlib(text));
        }
        return digest.digest();
    }

    static byte[] throughZlib(byte[] text) throws Exception {
        ByteBuffer plain = ByteBuffer.allocateDirect(text.length).put(text).flip();
        ByteBuffer packed = ByteBuffer.allocateDirect(text.length + 64);
        var deflater = new Deflater();
        deflater.setInput(plain);
        deflater.finish();
        while (!deflater.finished()) deflater.deflate(packed);
        deflater.end();
        var inflater = new Inflater();
        inflater.setInput(packed.flip());
        byte[] again = new byte[text.length];
        int length = inflater.inflate(again);
        inflater.end();
        if (length != text.length || !java.util.Arrays.equals(again, text)) throw new AssertionError("unpacked differs");
        return again;
    }
}
