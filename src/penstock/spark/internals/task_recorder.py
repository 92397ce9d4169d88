"""Java of the listener that keeps a row for each task of a micro-batch until it is taken.

Spark's own compiler (Janino) makes a SparkListener of it: Java 8 without lambdas or generics. Nothing may leave a
callback: Spark stops the whole application when a listener throws a linkage error. After its first fault the listener
forgets everything, keeps no further row, and tells the fault to who asks. A batch of which Spark's bus dropped events
is told as empty: what is missing of it nobody knows.
"""

SOURCE = r"""
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.TreeSet;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.*;
import org.apache.spark.sql.execution.SparkPlanInfo;
import org.apache.spark.sql.execution.metric.SQLMetricInfo;
import org.apache.spark.sql.execution.ui.*;

private static final int TASK = 22, STAGES = 4096, PLANS = 64, BATCHES = 256;
private static final int SCAN = 0, STATEFUL = 1, PYTHON = 2;
private static final java.util.regex.Pattern OPERATOR = java.util.regex.Pattern.compile("opId = (\\d+)");
private static final java.util.regex.Pattern BATCH =
    java.util.regex.Pattern.compile("runId = (\\S+)\\s+batch = (\\d+)");

static class Rows {
    final int width;
    double[] values = new double[0];
    int count = 0;
    Rows(int width) { this.width = width; }
    int add() {
        if ((count + 1) * width > values.length)
            values = java.util.Arrays.copyOf(values, Math.max(16 * width, 2 * values.length));
        return width * count++;
    }
}

static class Batch {
    final Rows tasks = new Rows(TASK), states;
    final LinkedHashMap stages = new LinkedHashMap();
    boolean ended = false;
    Batch(int metrics) { states = new Rows(metrics + 2); }
}

static class Run {
    final LinkedHashMap batches = new LinkedHashMap();
    long first = Long.MAX_VALUE;
    int tasks = 0;
}

static class Stage {
    String run;
    long batch;
    String about;
    int tasks, succeeded = 0;
    boolean whole = false;
    final TreeSet nodes = new TreeSet();
}

private String[] names;
private int most;
private volatile String fault = null;
private final HashMap runs = new HashMap(), executors = new HashMap(), meters = new HashMap(), roots = new HashMap();
private final ArrayList hosts = new ArrayList();
private final LinkedHashMap stages = new LinkedHashMap(), plans = new LinkedHashMap(), ended = new LinkedHashMap();

/** The names of the metrics of state, by how each begins, and the tasks of a run that are kept for its reader. */
public void configure(String lines, int tasks) {
    names = lines.split("\n");
    most = tasks;
}

public void onOtherEvent(SparkListenerEvent event) {
    if (fault == null) try { other(event); } catch (Throwable problem) { broken(problem); }
}

public void onStageSubmitted(SparkListenerStageSubmitted event) {
    if (fault == null) try { begins(event); } catch (Throwable problem) { broken(problem); }
}

public void onStageCompleted(SparkListenerStageCompleted event) {
    if (fault == null) try { ends(event.stageInfo()); } catch (Throwable problem) { broken(problem); }
}

public void onTaskEnd(SparkListenerTaskEnd event) {
    if (fault == null) try { task(event); } catch (Throwable problem) { broken(problem); }
}

private synchronized void broken(Throwable problem) {
    fault = "the task listener failed and keeps no more: " + problem;
    runs.clear(); executors.clear(); meters.clear(); roots.clear(); hosts.clear();
    stages.clear(); plans.clear(); ended.clear();
    notifyAll();
}

private void other(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
        SparkListenerSQLExecutionStart start = (SparkListenerSQLExecutionStart) event;
        synchronized (this) {
            java.util.regex.Matcher about = BATCH.matcher(start.description());
            Run run = about.find() ? (Run) runs.get(about.group(1)) : null;
            if (run == null) return;
            boolean root = start.rootExecutionId().isEmpty()
                || ((Number) start.rootExecutionId().get()).longValue() == start.executionId();
            if (root) {
                // Only a batch that is seen from its start is told of.
                Batch batch = new Batch(names.length);
                run.batches.put(Long.valueOf(about.group(2)), batch);
                run.first = Math.min(run.first, Long.parseLong(about.group(2)));
                roots.put(Long.valueOf(start.executionId()), batch);
                while (run.batches.size() > BATCHES) drop(run, run.batches.keySet().iterator().next());
            }
            learn(start.executionId(), start.sparkPlanInfo(), root);
        }
    } else if (event instanceof SparkListenerSQLAdaptiveExecutionUpdate) {
        SparkListenerSQLAdaptiveExecutionUpdate update = (SparkListenerSQLAdaptiveExecutionUpdate) event;
        synchronized (this) {
            if (plans.containsKey(Long.valueOf(update.executionId())))
                learn(update.executionId(), update.sparkPlanInfo(), false);
        }
    } else if (event instanceof SparkListenerSQLExecutionEnd) {
        Long id = Long.valueOf(((SparkListenerSQLExecutionEnd) event).executionId());
        synchronized (this) {
            if (plans.containsKey(id)) ended.put(id, id);
            Batch batch = (Batch) roots.remove(id);
            if (batch != null) {
                batch.ended = true;
                notifyAll();
            }
            while (ended.size() > PLANS) {
                Object oldest = ended.keySet().iterator().next();
                ended.remove(oldest);
                Iterator ids = ((ArrayList) plans.remove(oldest)).iterator();
                while (ids.hasNext()) meters.remove(ids.next());
            }
        }
    }
}

private void learn(long execution, SparkPlanInfo plan, boolean root) {
    ArrayList ids = (ArrayList) plans.get(Long.valueOf(execution));
    if (ids == null) plans.put(Long.valueOf(execution), ids = new ArrayList());
    walk(plan, ids, new int[] {0, 0}, root && !hasStreamingScan(plan));
}

private static boolean hasStreamingScan(SparkPlanInfo node) {
    if (node.nodeName().startsWith("MicroBatchScan")) return true;
    scala.collection.Iterator nodes = node.children().iterator();
    while (nodes.hasNext()) if (hasStreamingScan((SparkPlanInfo) nodes.next())) return true;
    return false;
}

private void walk(SparkPlanInfo node, ArrayList ids, int[] counts, boolean anyLeaf) {
    boolean stateful = false, leaf = node.children().isEmpty();
    scala.collection.Iterator metrics = node.metrics().iterator();
    while (metrics.hasNext()) stateful |= ((SQLMetricInfo) metrics.next()).name().equals(names[0]);
    boolean scan = node.nodeName().startsWith("MicroBatchScan") || (anyLeaf && leaf);
    int number = 0;
    if (stateful) {
        java.util.regex.Matcher found = OPERATOR.matcher(node.simpleString());
        number = found.find() ? Integer.parseInt(found.group(1)) : counts[1];
        counts[1]++;
    } else if (scan) number = counts[0]++;
    metrics = node.metrics().iterator();
    while (metrics.hasNext()) {
        SQLMetricInfo metric = (SQLMetricInfo) metrics.next();
        Long id = Long.valueOf(metric.accumulatorId());
        int[] meter = null;
        if (metric.name().equals("data sent to Python workers")) meter = new int[] {PYTHON, 0, 0};
        else if (scan) meter = new int[] {SCAN, number, 0};
        else if (stateful) {
            for (int i = 0; i < names.length && meter == null; i++)
                if (metric.name().startsWith(names[i])) meter = new int[] {STATEFUL, number, i};
        }
        if (meter != null && meters.put(id, meter) == null) ids.add(id);
    }
    scala.collection.Iterator nodes = node.children().iterator();
    while (nodes.hasNext()) walk((SparkPlanInfo) nodes.next(), ids, counts, anyLeaf);
}

private synchronized void begins(SparkListenerStageSubmitted event) {
    java.util.Properties about = event.properties();
    String run = about == null ? null : about.getProperty("spark.jobGroup.id");
    String batch = about == null ? null : about.getProperty("streaming.sql.batchId");
    if (run == null || batch == null || !runs.containsKey(run)) return;
    Stage stage = new Stage();
    stage.run = run;
    stage.batch = Long.parseLong(batch);
    StageInfo info = event.stageInfo();
    stage.tasks = info.numTasks();
    stage.about = info.stageId() + " " + info.attemptNumber() + " " + batch + " " + info.numTasks() + " "
        + (info.parentIds().isEmpty() ? 0 : 1) + " " + (info.shuffleDepId().isDefined() ? 1 : 0);
    stages.put(key(info.stageId(), info.attemptNumber()), stage);
    while (stages.size() > STAGES) stages.remove(stages.keySet().iterator().next());
    Batch whose = (Batch) ((Run) runs.get(run)).batches.get(Long.valueOf(stage.batch));
    if (whose != null) whose.stages.put(stage, stage);
}

private synchronized void ends(StageInfo info) {
    Stage stage = (Stage) stages.get(key(info.stageId(), info.attemptNumber()));
    if (stage != null) stage.whole = info.failureReason().isDefined() || stage.succeeded >= stage.tasks;
}

private void drop(Run run, Object batch) { run.tasks -= ((Batch) run.batches.remove(batch)).tasks.count; }

private static Long key(int stage, int attempt) { return Long.valueOf(((long) stage << 20) + attempt); }

private synchronized void task(SparkListenerTaskEnd event) {
    Stage stage = (Stage) stages.get(key(event.stageId(), event.stageAttemptId()));
    Run run = stage == null ? null : (Run) runs.get(stage.run);
    if (run == null || event.taskMetrics() == null) return;
    Batch batch = (Batch) run.batches.get(Long.valueOf(stage.batch));
    if (batch == null) return;
    TaskInfo task = event.taskInfo();
    if (task.successful()) stage.succeeded++;
    TaskMetrics used = event.taskMetrics();
    int at = batch.tasks.add();
    double[] row = batch.tasks.values;
    row[at++] = event.stageId();
    row[at++] = event.stageAttemptId();
    row[at++] = task.partitionId() < 0 ? task.index() : task.partitionId();
    row[at++] = executor(task.executorId(), task.host());
    row[at++] = task.successful() ? 1 : 0;
    row[at++] = task.launchTime();
    row[at++] = task.finishTime() - task.launchTime();
    row[at++] = used.executorRunTime();
    row[at++] = used.executorCpuTime();
    row[at++] = used.executorDeserializeTime();
    row[at++] = used.jvmGCTime();
    row[at++] = used.inputMetrics().recordsRead();
    row[at++] = used.inputMetrics().bytesRead();
    row[at++] = used.outputMetrics().recordsWritten();
    row[at++] = used.outputMetrics().bytesWritten();
    row[at++] = used.shuffleReadMetrics().recordsRead();
    row[at++] = used.shuffleReadMetrics().localBytesRead();
    row[at++] = used.shuffleReadMetrics().remoteBytesRead();
    row[at++] = used.shuffleReadMetrics().fetchWaitTime();
    row[at++] = used.shuffleWriteMetrics().recordsWritten();
    row[at++] = used.shuffleWriteMetrics().bytesWritten();
    row[at++] = used.diskBytesSpilled();
    states(event, stage, batch);
    run.tasks++;
    while (run.tasks > most && run.batches.size() > 1) drop(run, run.batches.keySet().iterator().next());
}

private void states(SparkListenerTaskEnd event, Stage stage, Batch batch) {
    HashMap rows = null;
    scala.collection.Iterator updates = event.taskInfo().accumulables().iterator();
    while (updates.hasNext()) {
        AccumulableInfo update = (AccumulableInfo) updates.next();
        int[] meter = (int[]) meters.get(Long.valueOf(update.id()));
        if (meter == null || update.update().isEmpty() || !(update.update().get() instanceof Number)) continue;
        double value = ((Number) update.update().get()).doubleValue();
        if (meter[0] == PYTHON) {
            if (value > 0) stage.nodes.add("python");
        } else if (meter[0] == SCAN) stage.nodes.add("scan" + meter[1]);
        else {
            stage.nodes.add("state" + meter[1]);
            if (rows == null) rows = new HashMap();
            Integer at = (Integer) rows.get(Integer.valueOf(meter[1]));
            if (at == null) {
                rows.put(Integer.valueOf(meter[1]), at = Integer.valueOf(batch.states.add()));
                batch.states.values[at.intValue()] = batch.tasks.count - 1;
                batch.states.values[at.intValue() + 1] = meter[1];
            }
            batch.states.values[at.intValue() + 2 + meter[2]] += Math.max(0, value);
        }
    }
}

private int executor(String id, String host) {
    Integer known = (Integer) executors.get(id);
    if (known == null) {
        executors.put(id, known = Integer.valueOf(hosts.size()));
        hosts.add(id + " " + host);
    }
    return known.intValue();
}

/** Rows of a batch, once: Spark tells its listeners of the end a little later than the query's progress does. */
public synchronized byte[] take(String id, long wanted, long patience) throws Exception {
    Run run = (Run) runs.get(id);
    if (run == null) runs.put(id, run = new Run());
    Batch batch = (Batch) run.batches.get(Long.valueOf(wanted));
    long until = System.currentTimeMillis() + patience;
    while (fault == null && (batch == null || !batch.ended) && run.first <= wanted
            && System.currentTimeMillis() < until) {
        wait(Math.max(1, until - System.currentTimeMillis()));
        batch = (Batch) run.batches.get(Long.valueOf(wanted));
    }
    if (fault != null) throw new IllegalStateException(fault);
    if (batch == null || !batch.ended) return new byte[0];
    Iterator entries = run.batches.entrySet().iterator();
    while (entries.hasNext()) {
        java.util.Map.Entry entry = (java.util.Map.Entry) entries.next();
        if (((Long) entry.getKey()).longValue() > wanted) continue;
        run.tasks -= ((Batch) entry.getValue()).tasks.count;
        entries.remove();
    }
    StringBuilder lines = new StringBuilder();
    Iterator parts = batch.stages.keySet().iterator();
    while (parts.hasNext()) {
        Stage stage = (Stage) parts.next();
        if (!stage.whole) return new byte[0];
        lines.append("stage ").append(stage.about);
        Iterator nodes = stage.nodes.iterator();
        while (nodes.hasNext()) lines.append(" ").append(nodes.next());
        lines.append("\n");
    }
    for (int i = 0; i < hosts.size(); i++) lines.append("executor ").append(hosts.get(i)).append("\n");
    byte[] text = lines.toString().getBytes("UTF-8");
    int padded = (text.length + 7) / 8 * 8;
    int rows = batch.tasks.count * TASK + batch.states.count * (names.length + 2);
    java.nio.ByteBuffer reply = java.nio.ByteBuffer.allocate(24 + padded + 8 * rows);
    reply.order(java.nio.ByteOrder.LITTLE_ENDIAN);
    reply.putLong(text.length).putLong(batch.tasks.count).putLong(batch.states.count).put(text);
    reply.position(24 + padded);
    put(reply, batch.tasks);
    put(reply, batch.states);
    return reply.array();
}

private static void put(java.nio.ByteBuffer reply, Rows rows) {
    for (int i = 0; i < rows.count * rows.width; i++) reply.putDouble(rows.values[i]);
}

public synchronized void follow(String id) { if (!runs.containsKey(id)) runs.put(id, new Run()); }
"""
