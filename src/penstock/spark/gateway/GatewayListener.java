package penstock;

import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.SecureRandom;
import java.util.Base64;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Set;

import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerApplicationStart;
import py4j.DefaultGatewayServerListener;
import py4j.Gateway;
import py4j.GatewayServer;
import py4j.Py4JServerConnection;

/**
 * Opens an authenticated Py4J gateway on loopback in a driver of any language, for `penstock attach`.
 *
 * A listener and no plugin: only the driver loads it, and what it throws after its constructor stops nothing. Janino
 * compiles this file: no lambdas, and generics only as raw types.
 */
public class GatewayListener extends SparkListener {
    private final String place;
    private GatewayServer server;
    private Path file;
    private byte[] told;

    public GatewayListener(SparkConf conf) {
        place = conf.get("spark.penstock.gateway", "");
    }

    /** Null while the constructor of the context runs, and after its end. */
    public static class Entry {
        public SparkContext context() {
            scala.Option found = org.apache.spark.SparkContext$.MODULE$.getActive();
            return found.isDefined() ? (SparkContext) found.get() : null;
        }
    }

    /** Lets go of the objects that a pilot held when the last of its connections ends, killed or not. */
    public static class Connections extends DefaultGatewayServerListener {
        private final Set open = new HashSet();
        private final Gateway gateway;

        public Connections(Gateway gateway) {
            this.gateway = gateway;
        }

        public synchronized void connectionStarted(Py4JServerConnection connection) {
            open.add(connection);
        }

        public synchronized void connectionStopped(Py4JServerConnection connection) {
            if (!open.remove(connection) || !open.isEmpty()) return;
            Iterator each = gateway.getBindings().keySet().iterator();
            while (each.hasNext()) if (((String) each.next()).matches("o\\d+")) each.remove();
        }
    }

    public void onApplicationStart(SparkListenerApplicationStart start) {
        try {
            String app = (String) start.appId().get();
            byte[] bytes = new byte[32];
            new SecureRandom().nextBytes(bytes);
            String secret = Base64.getEncoder().encodeToString(bytes);
            server = new GatewayServer.GatewayServerBuilder(new Entry())
                .javaPort(0).javaAddress(InetAddress.getLoopbackAddress()).authToken(secret).build();
            server.addListener(new Connections(server.getGateway()));
            server.start(true); // its threads are daemons, as the one of the listeners is: they keep no driver alive
            String usual = System.getProperty("java.io.tmpdir") + "/penstock-" + app;
            file = Paths.get(place.isEmpty() ? usual : place, new String[0]).toAbsolutePath();
            told = (server.getListeningPort() + " " + secret + " " + app + "\n").getBytes("UTF-8");
            Path part = Files.createTempFile(file.getParent(), "penstock", "", new FileAttribute[] {
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))});
            try {
                Files.write(part, told, new java.nio.file.OpenOption[0]);
                Files.move(part, file, new java.nio.file.CopyOption[] {StandardCopyOption.ATOMIC_MOVE});
            } finally {
                Files.deleteIfExists(part);
            }
            System.err.println("penstock: gateway file " + file);
        } catch (Throwable problem) {
            close();
            System.err.println("penstock: no gateway, the application goes on without: " + problem);
        }
    }

    public void onApplicationEnd(SparkListenerApplicationEnd end) {
        close();
    }

    private void close() {
        try {
            if (server != null) server.shutdown();
            // Another application may have been given the same file meanwhile.
            if (file != null && java.util.Arrays.equals(Files.readAllBytes(file), told)) Files.delete(file);
        } catch (Throwable problem) {
            // What is left names a port that nobody listens on.
        }
    }
}
