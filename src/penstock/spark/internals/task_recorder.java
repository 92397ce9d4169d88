// A row for each task that ended in the runs that are followed, kept until its micro-batch has ended and it is taken.
// Compiled by Spark's own compiler (Janino) as the body of a SparkListener: Java 8 without lambdas or generics.
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

private static final int TASK = 22, STAGES = 4096, PLANS = 64;
private static final int SCAN = 0, STATEFUL = 1, PYTHON = 2;
private static final java.util.regex.Pattern OPERATOR = java.util.regex.Pattern.compile("opId = (\\d+)");

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
    Batch(int metrics) { states = new Rows(metrics + 2); }
}

static class Run {
    final LinkedHashMap batches = new LinkedHashMap();
    int tasks = 0;
    long dropped = 0;
}

static class Stage {
    String run;
    long batch;
    String about;
    final TreeSet nodes = new TreeSet();
}

private String[] names;
private int most;
private final HashMap runs = new HashMap(), executors = new HashMap(), meters = new HashMap();
private final ArrayList hosts = new ArrayList();
private final LinkedHashMap stages = new LinkedHashMap(), plans = new LinkedHashMap(), ended = new LinkedHashMap();

/** The names of the metrics of state, by how each begins, and the tasks of a run that are kept for its reader. */
public void configure(String lines, int tasks) {
    names = lines.split("\n");
    most = tasks;
}

public void onOtherEvent(SparkListenerEvent event) {
    if (event instanceof SparkListenerSQLExecutionStart) {
        SparkListenerSQLExecutionStart start = (SparkListenerSQLExecutionStart) event;
        synchronized (this) {
            if (!isFollowed(start.description())) return;
            boolean root = start.rootExecutionId().isEmpty()
                || ((Number) start.rootExecutionId().get()).longValue() == start.executionId();
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
            while (ended.size() > PLANS) {
                Object oldest = ended.keySet().iterator().next();
                ended.remove(oldest);
                Iterator ids = ((ArrayList) plans.remove(oldest)).iterator();
                while (ids.hasNext()) meters.remove(ids.next());
            }
        }
    }
}

private boolean isFollowed(String description) {
    Iterator known = runs.keySet().iterator();
    while (known.hasNext()) if (description.indexOf("runId = " + known.next()) >= 0) return true;
    return false;
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

public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
    java.util.Properties about = event.properties();
    String run = about == null ? null : about.getProperty("spark.jobGroup.id");
    String batch = about == null ? null : about.getProperty("streaming.sql.batchId");
    if (run == null || batch == null || !runs.containsKey(run)) return;
    Stage stage = new Stage();
    stage.run = run;
    stage.batch = Long.parseLong(batch);
    StageInfo info = event.stageInfo();
    stage.about = info.stageId() + " " + info.attemptNumber() + " " + batch + " " + info.numTasks() + " "
        + (info.parentIds().isEmpty() ? 0 : 1) + " " + (info.shuffleDepId().isDefined() ? 1 : 0);
    stages.put(key(info.stageId(), info.attemptNumber()), stage);
    while (stages.size() > STAGES) stages.remove(stages.keySet().iterator().next());
}

private static Long key(int stage, int attempt) { return Long.valueOf(((long) stage << 20) + attempt); }

public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
    Stage stage = (Stage) stages.get(key(event.stageId(), event.stageAttemptId()));
    Run run = stage == null ? null : (Run) runs.get(stage.run);
    if (run == null || event.taskMetrics() == null) return;
    Batch batch = (Batch) run.batches.get(Long.valueOf(stage.batch));
    if (batch == null) run.batches.put(Long.valueOf(stage.batch), batch = new Batch(names.length));
    batch.stages.put(stage, stage);
    TaskInfo task = event.taskInfo();
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
    while (run.tasks > most && run.batches.size() > 1) {
        Object oldest = run.batches.keySet().iterator().next();
        int gone = ((Batch) run.batches.remove(oldest)).tasks.count;
        run.tasks -= gone;
        run.dropped += gone;
    }
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

public synchronized byte[] take(String id, long last) throws Exception {
    Run run = (Run) runs.get(id);
    if (run == null) runs.put(id, run = new Run());
    ArrayList taken = new ArrayList();
    StringBuilder lines = new StringBuilder();
    int tasks = 0, states = 0;
    Iterator entries = run.batches.entrySet().iterator();
    while (entries.hasNext()) {
        java.util.Map.Entry entry = (java.util.Map.Entry) entries.next();
        if (((Long) entry.getKey()).longValue() > last) continue;
        Batch batch = (Batch) entry.getValue();
        entries.remove();
        taken.add(batch);
        tasks += batch.tasks.count;
        states += batch.states.count;
        Iterator parts = batch.stages.keySet().iterator();
        while (parts.hasNext()) {
            Stage stage = (Stage) parts.next();
            lines.append("stage ").append(stage.about);
            Iterator nodes = stage.nodes.iterator();
            while (nodes.hasNext()) lines.append(" ").append(nodes.next());
            lines.append("\n");
        }
    }
    run.tasks -= tasks;
    if (tasks > 0) for (int i = 0; i < hosts.size(); i++) lines.append("executor ").append(hosts.get(i)).append("\n");
    byte[] text = lines.toString().getBytes("UTF-8");
    int padded = (text.length + 7) / 8 * 8;
    int rows = tasks * TASK + states * (names.length + 2);
    java.nio.ByteBuffer reply = java.nio.ByteBuffer.allocate(32 + padded + 8 * rows);
    reply.order(java.nio.ByteOrder.LITTLE_ENDIAN);
    reply.putLong(text.length).putLong(tasks).putLong(states).putLong(run.dropped).put(text);
    reply.position(32 + padded);
    for (int i = 0; i < taken.size(); i++) put(reply, ((Batch) taken.get(i)).tasks, 0);
    int before = 0;
    for (int i = 0; i < taken.size(); i++) {
        put(reply, ((Batch) taken.get(i)).states, before);
        before += ((Batch) taken.get(i)).tasks.count;
    }
    run.dropped = 0;
    return reply.array();
}

private static void put(java.nio.ByteBuffer reply, Rows rows, int before) {
    for (int i = 0; i < rows.count * rows.width; i++)
        reply.putDouble(before > 0 && i % rows.width == 0 ? rows.values[i] + before : rows.values[i]);
}

public synchronized void forget(String id) { runs.remove(id); }
