import io.github.bucket4j.BucketConfiguration;
import io.github.bucket4j.distributed.AsyncBucketProxy;
import io.github.bucket4j.distributed.ExpirationAfterWriteStrategy;
import io.github.bucket4j.redis.lettuce.Bucket4jLettuce;
import io.lettuce.core.RedisClient;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.codec.RedisCodec;
import io.lettuce.core.codec.StringCodec;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;

/** The load of load.js through bucket4j over Lettuce. Prints decisions per second and the median latency in microseconds. */
public final class Bucket4j {
    public static void main(String[] arguments) {
        int[] numbers = Arrays.stream(arguments).mapToInt(Integer::parseInt).toArray();
        int port = numbers[0], callers = numbers[1], decisions = numbers[2], keys = numbers[3];
        RedisClient client = RedisClient.create("redis://127.0.0.1:" + port);
        var connection = client.connect(RedisCodec.of(StringCodec.UTF8, ByteArrayCodec.INSTANCE));
        var manager = Bucket4jLettuce.casBasedBuilder(connection)
            .expirationAfterWrite(ExpirationAfterWriteStrategy.basedOnTimeForRefillingBucketUpToMax(Duration.ofSeconds(10)))
            .build()
            .asAsync();
        var configuration = CompletableFuture.completedFuture(
            BucketConfiguration.builder().addLimit(limit -> limit.capacity(10_000_000).refillGreedy(10_000_000, Duration.ofMinutes(1))).build());
        long[] took = new long[decisions / callers * callers];
        long began = System.nanoTime();
        CompletableFuture<?>[] all = new CompletableFuture<?>[callers];
        for (int caller = 0; caller < callers; caller++) {
            AsyncBucketProxy[] buckets = new AsyncBucketProxy[Math.max(keys, 1)];
            for (int key = 0; key < buckets.length; key++) {
                String name = "bucket4j:" + (keys == 0 ? "hot" : caller + "-" + key);
                buckets[key] = manager.builder().build(name, () -> configuration);
            }
            int first = caller * (took.length / callers);
            CompletableFuture<Void> done = new CompletableFuture<>();
            all[caller] = done;
            turn(buckets, took, first, first + took.length / callers, done);
        }
        CompletableFuture.allOf(all).join();
        double seconds = (System.nanoTime() - began) / 1e9;
        Arrays.sort(took);
        System.out.println(took.length / seconds + " " + took[took.length / 2] / 1e3);
        client.shutdown();
    }

    /** One caller's decisions, each after the one before. A loop of callbacks: nested futures would overflow the stack when they end. */
    private static void turn(AsyncBucketProxy[] buckets, long[] took, int at, int end, CompletableFuture<Void> done) {
        if (at == end) {
            done.complete(null);
            return;
        }
        long began = System.nanoTime();
        buckets[at % buckets.length].tryConsume(1).whenCompleteAsync((allowed, why) -> {
            if (why != null || !allowed) {
                done.completeExceptionally(new IllegalStateException("the limit is never reached", why));
                return;
            }
            took[at] = System.nanoTime() - began;
            turn(buckets, took, at + 1, end, done);
        });
    }
}
